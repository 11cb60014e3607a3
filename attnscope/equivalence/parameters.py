"""The parameters of a module, and what each is for: query, key, value, fused, output, of which head.

Nothing here reads values: a role follows from names, shapes and the class of the layer that owns the
parameter. `Table` also lists parameters of layers that lie in plain lists, which PyTorch does not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.sandbox.guard import walk

_Q = re.compile(
    r"^(w_?)?q(uery|ueries|s)?(_?(proj|lin|linear|layer|w|net|fc|head|heads))?$|^(to|lin|linear|proj|fc|w|c)_?q(uery|ueries)?$"
)
_K = re.compile(
    r"^(w_?)?k(ey|eys|s)?(_?(proj|lin|linear|layer|w|net|fc|head|heads))?$|^(to|lin|linear|proj|fc|w|c)_?k(ey|eys)?$"
)
_V = re.compile(
    r"^(w_?)?v(alue|alues|al|als|s)?(_?(proj|lin|linear|layer|w|net|fc|head|heads))?$|^(to|lin|linear|proj|fc|w|c)_?v(alue|alues|al|als)?$"
)
_QKV = re.compile(
    r"qkv|c_attn|query_key_value|^in_proj$|^proj_in$|^packed$|^fused|^mixed|^input_proj|^in_projection$"
)
_KV = re.compile(r"^(to_?|c_|w_?|lin_?)?kv(_?(proj|lin|linear))?$|key_value")
_O = re.compile(
    r"^(to_?|lin_?|linear_?|fc_?|w_?|c_)?(out|output|o)(_?(proj|projection|lin|linear|layer|fc|w))?$"
    r"|^(c_?)?proj(_out)?$|^projection$|^dense$|^merge|^join|^mix$|^unify|^combine|^resid|^fc$|^final"
)
_HEADS = re.compile(r"^(attn_|attention_|self_attn_)?(heads?|hs|h)(_list|_modules)?$")
_PLAIN_LISTS = re.compile(r"^(linears|projections|projs|layers|fcs)$")
_NOT_ATTENTION = re.compile(r"mlp|ffn?|feed_?forward|fc_?\d|gate|^up|^down|embed|norm|^ln|lm_head|wte|wpe")


_PROJECTS = frozenset(("q", "k", "v", "qkv", "kv"))


@dataclass(frozen=True)
class Param:
    """One parameter. `flat` are the addresses of its numbers in the table's flat vector, in its own shape.

    `prefix` is the path of the attention that it belongs to; `role` is q, k, v, qkv, kv, o or `other`; `part`
    weight or bias; `head` the number of the head that owns it alone. `turned` is True where the layer keeps
    its weight as [in, out], None where only a trial can tell.
    """

    name: str
    value: Tensor
    flat: Tensor
    prefix: str
    role: str
    part: str
    head: int | None
    turned: bool | None
    registered: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def kind(self) -> tuple[str, tuple[int, ...], bool | None]:
        return self.name, self.shape, self.turned


class Table:
    """All parameters of a module in order, with addresses in one flat vector.

    `tied` has the further names of a parameter that bears several, with its first.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        found = list(_named(module))
        owners = dict(_owners(module))
        self.params: list[Param] = []
        start = 0
        for name, value, registered in found:
            flat = torch.arange(start, start + value.numel()).view(value.shape)
            start += value.numel()
            prefix, role, part, head = _role(name)
            turned = _turned(value, owners.get(name))
            self.params.append(Param(name, value, flat, prefix, role, part, head, turned, registered))
        self.size = start
        first = {id(p.value): p.name for p in self.params}
        self.tied = {
            name: first[id(value)]
            for name, value in module.named_parameters(remove_duplicate=False)
            if id(value) in first and first[id(value)] != name
        }
        self.params = _by_shape(self.params)

    def __getitem__(self, name: str) -> Param:
        return next(p for p in self.params if p.name == name)

    @property
    def names(self) -> list[str]:
        return [p.name for p in self.params]

    def vector(self) -> Tensor:
        """The values of all parameters, one behind the other, in float64."""
        parts = [p.value.detach().double().reshape(-1) for p in self.params]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def gradient(self) -> Tensor:
        """The gradients likewise; 0 where there is none."""
        parts = [
            (torch.zeros_like(p.value) if p.value.grad is None else p.value.grad)
            .detach()
            .double()
            .reshape(-1)
            for p in self.params
        ]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def fill(self, vector: Tensor) -> None:
        """Write values into the parameters."""
        with torch.no_grad():
            for p in self.params:
                p.value.copy_(vector[p.flat])

    def holding(self, addresses: Tensor) -> list[Param]:
        """The parameters that addresses lie in, in order; negative ones lie in none."""
        flat = addresses.reshape(-1)
        ends = torch.tensor([p.value.numel() for p in self.params]).cumsum(0)
        found = set(torch.bucketize(flat[flat >= 0], ends, right=True).tolist())
        return [self.params[i] for i in sorted(found)]


def _named(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Floating parameters once each; then those of modules and lists that are plain attributes."""
    seen: set[int] = set()
    for name, value in module.named_parameters():
        if value.is_floating_point() and not isinstance(value, nn.parameter.UninitializedParameter):
            seen.add(id(value))
            yield name, value, True
    for path, child in walk(module):
        for name, value in list(vars(child).items()):
            if name.startswith("_"):
                continue
            for tail, part in _loose(value):
                where = ".".join(x for x in (path, name, tail) if x)
                values = [("", part)] if isinstance(part, nn.Parameter) else list(part.named_parameters())
                for inner, found in values:
                    if id(found) not in seen and found.is_floating_point():
                        seen.add(id(found))
                        yield f"{where}.{inner}" if inner else where, found, False


def _loose(value: Any) -> Iterator[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    if type(value) in (list, tuple):
        items = [(str(i), v) for i, v in enumerate(value[:64])]
    elif type(value) is dict:
        items = [(str(k), v) for k, v in list(value.items())[:64]]
    for name, item in items:
        if isinstance(item, nn.Module | nn.Parameter):
            yield name, item


def _owners(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, child in walk(module):
        tables = vars(child).get("_parameters")
        for name in tables if isinstance(tables, dict) else ():  # a compiled module keeps none
            yield (f"{path}.{name}" if path else name), child


def _turned(value: Tensor, owner: nn.Module | None) -> bool | None:
    """Whether a weight is kept as [in, out]."""
    if value.dim() != 2 or owner is None:
        return False
    if isinstance(owner, nn.Linear | nn.MultiheadAttention | nn.Embedding):
        return False
    if type(owner).__name__ == "Conv1D":
        return True
    return None


def _role(name: str) -> tuple[str, str, str, int | None]:
    """Prefix, role, part and head by name alone."""
    parts = name.split(".")
    part = "weight"
    if parts[-1] in ("weight", "bias"):
        part = parts.pop()
    elif re.search(r"_?(bias|weight)$", parts[-1]) and len(parts[-1]) > 6:
        part = "bias" if parts[-1].endswith("bias") else "weight"
        parts[-1] = re.sub(r"_?(bias|weight)$", "", parts[-1])
    elif re.fullmatch(r"b_?[qkvo]", parts[-1].lower()):
        part, parts[-1] = "bias", parts[-1][-1]
    head: int | None = None
    for place, (word, number) in enumerate(pairwise(parts)):
        if _HEADS.match(word.lower()) and number.isdigit():
            head = int(number)
            rest = parts[place + 2 :]
            role = _word(rest[-1]) if rest else "qkv"
            return ".".join(parts[:place]), role, part, head
    if len(parts) > 1 and parts[-1].isdigit():
        role = _word(parts[-2])
        if _PLAIN_LISTS.match(parts[-2].lower()):
            return ".".join(parts[:-2]), "other", part, None
        head = int(parts[-1]) if role in ("q", "k", "v") else None
        return ".".join(parts[:-2]), role, part, head
    if len(parts) > 1 and _word(parts[-2]) in ("q", "k", "v", "qkv", "kv"):  # `query.linear.weight`
        return ".".join(parts[:-2]), _word(parts[-2]), part, None
    return ".".join(parts[:-1]), _word(parts[-1]) if parts else "other", part, None


def _word(word: str) -> str:
    """The role that a layer's name has by custom."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower().strip("_")
    joined = split.replace("_", "")
    if _QKV.search(split):
        return "qkv"
    if _KV.search(split):
        return "kv"
    for role, pattern in (("q", _Q), ("k", _K), ("v", _V), ("o", _O)):
        if pattern.search(split) or pattern.search(joined):
            return role
    return "other"


def _by_shape(params: list[Param]) -> list[Param]:
    """Roles that only shapes and order tell: a weight three times as high, four squares in a row."""
    roles: dict[str, str] = {}
    for prefix in dict.fromkeys(p.prefix for p in params):
        group = [p for p in params if p.prefix == prefix and p.head is None]
        known = {p.role for p in group}
        weights = [
            p
            for p in group
            if p.role == "other"
            and p.part == "weight"
            and p.value.dim() == 2
            and not _NOT_ATTENTION.search(p.name.lower())
        ]
        guess: dict[str, str] = {}
        if not known & {"q", "k", "v", "qkv", "kv"}:
            fused = next((p for p in weights if _ratio(p) == 3), None)
            if fused is not None:
                guess[_layer(fused.name)] = "qkv"
                weights.remove(fused)
            elif len(weights) in (3, 4) and len({p.shape for p in weights[:3]}) == 1:
                for p, role in zip(weights, "qkvo", strict=False):
                    guess[_layer(p.name)] = role
                weights = []
        attends = bool((known | set(guess.values())) & {"q", "k", "v", "qkv", "kv"})
        if (
            attends
            and "o" not in known | set(guess.values())
            and len(weights) == 1
            and _ratio(weights[0]) == 1
        ):
            guess[_layer(weights[0].name)] = "o"
        for p in group:
            if p.role == "other" and _layer(p.name) in guess:
                roles[p.name] = guess[_layer(p.name)]
    params = [replace(p, role=roles[p.name]) if p.name in roles else p for p in params]
    homes = _homes(params)
    return [replace(p, prefix=homes[p.prefix]) if p.prefix in homes else p for p in params]


def _homes(params: list[Param]) -> dict[str, str]:
    """Where an output projection stands beside its attention (`attention.output`, `attention.self`)."""
    roles: dict[str, set[str]] = {}
    for p in params:
        roles.setdefault(p.prefix, set()).add(p.role)
    lone = [prefix for prefix, found in roles.items() if "o" in found and not found & _PROJECTS]
    homes: dict[str, str] = {}
    for prefix, found in roles.items():
        if found & _PROJECTS and "o" not in found:
            parent = prefix.rpartition(".")[0]
            near = [other for other in lone if other.rpartition(".")[0] == parent and other not in homes]
            if prefix and near:
                homes[near[0]] = prefix
    return homes


def _layer(name: str) -> str:
    """The name of the layer that owns a weight or bias."""
    return re.sub(r"[._]?(weight|bias)$", "", name)


def _ratio(p: Param) -> float:
    out, into = p.shape if not p.turned else p.shape[::-1]
    if p.turned is None and out < into:
        out, into = into, out
    return out / into if into else 0.0
