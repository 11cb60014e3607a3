"""The two modules of a comparison, constructed of the same sizes from the same seed."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnscope.errors import UsageError
from attnscope.layers import LAYERS
from attnscope.layers import options as layer_options
from attnscope.loader import Built, Change, Made, Target, construct, load_target, settled
from attnscope.loader.expressions import evaluate, nearest, parse_binding, printable
from attnscope.loader.importing import Environment, run_user_code
from attnscope.loader.names import is_config_name, role_of
from attnscope.loader.sizes import as_size
from attnscope.sandbox.copying import deep_copy
from attnscope.schema import ModelInfo

HOUSE: Mapping[str, int] = {"C": 32, "H": 4, "T": 16}
"""Sizes where nobody names any: no two axes of a call have one size (D is 8, the batch 3)."""

_OUTPUT = re.compile(r"(^|_)out(put)?(_|$)")
_NOT_SIZES = ("depth", "seed", "dtype", "device")
_OPTION = {"C": "d_model", "H": "num_heads", "T": "context_length"}


@dataclass
class Side:
    """One module, ready to run. `name` is A or B; `label` the target as it was written."""

    name: str
    label: str
    target: Target
    built: Built
    heads: int | None = None
    groups: int | None = None
    context: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def module(self) -> nn.Module:
        """The module. Raises RuntimeError where constructing it raised."""
        if self.built.module is None:
            raise RuntimeError(f"{self.label} was not constructed")
        return self.built.module

    @property
    def environment(self) -> Environment:
        return self.target.environment

    def copied(self, dtype: torch.dtype | None = None) -> nn.Module:
        """A copy in evaluation mode, cast. A module that cannot be copied is constructed once more."""
        try:
            made = deep_copy(self.module)
        except KeyboardInterrupt:
            raise
        except BaseException:
            made = self.module
        if dtype is not None:
            run_user_code(self.environment, lambda: made.to(dtype))
        made.eval()
        return made

    def info(self, seed: int | None) -> ModelInfo:
        module = self.built.module
        number = 0 if module is None else sum(p.numel() for p in module.parameters())
        layer = self.target.layer
        return ModelInfo(
            layer=layer,
            target=None if layer else self.label,
            config=dict(self.built.config),
            seed=seed,
            weights="",
            parameters=number,
            guesses=(self.built.guesses,) if self.built.guesses and not layer else (),
        )


def build_sides(
    a: str | nn.Module,
    b: str | nn.Module,
    args: Sequence[str] = (),
    args_a: Sequence[str] = (),
    args_b: Sequence[str] = (),
    *,
    seed: int = 123,
) -> tuple[Side, Side]:
    """Load and construct both. `args` go to every side that takes them, `args_a` and `args_b` to one.

    Sizes that one side was given, or has as defaults, are used for the other where it would have to guess.

    Raises UsageError for targets that are not there and for arguments that neither side takes. What a
    constructor raises is in `Side.built.error`.
    """
    targets = _target(a), _target(b)
    given = [_shared(args, target) for target in targets]
    for text in args:
        if not any(text in own for own in given):
            name = parse_binding(text).dotted
            known = [n for target in targets for n in _parameters(target)]
            raise UsageError(f"neither module has an argument `{printable(name)}`", nearest(name, known))
    own = [*given[0], *args_a], [*given[1], *args_b]
    sizes: dict[str, int] = {}
    for target, texts in zip(targets, own, strict=True):
        for role, value in _fixed(target, texts).items():
            sizes.setdefault(role, value)
    if "H" in sizes:
        sizes.setdefault("C", 8 * sizes["H"])
    sides = []
    for name, target, texts in zip("AB", targets, own, strict=True):
        built = _construct(target, texts, {**HOUSE, **sizes}, seed)
        side = Side(name, _label(target), target, built)
        _facts(side)
        sides.append(side)
    return sides[0], sides[1]


def _target(value: str | nn.Module) -> Target:
    if isinstance(value, str):
        return load_target(value)
    cls = type(value)
    module = sys.modules.get(cls.__module__) or sys.modules["builtins"]
    file, tree = None, ast.Module(body=[], type_ignores=[])
    with suppress(OSError, TypeError, SyntaxError, ValueError):
        file = inspect.getsourcefile(cls)
        if file is not None:
            tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return Target(cls.__name__, cls.__name__, value, module, Environment((), sys.stderr), file, tree=tree)


def _label(target: Target) -> str:
    return target.text


def _signature(target: Target) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(target.factory).parameters
    except (TypeError, ValueError):
        return {}
    return {n: p for n, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _parameters(target: Target) -> list[str]:
    if isinstance(target.factory, nn.Module):
        return []
    if target.layer:
        layer = LAYERS[target.layer]
        options = [name for name in layer.info.options if name not in _NOT_SIZES]
        return list(dict.fromkeys([*options, *layer.arguments]))
    return list(_signature(target))


def _shared(args: Sequence[str], target: Target) -> list[str]:
    """Those of the common `--arg` that this target's constructor takes."""
    known = _parameters(target)
    takes_any = False
    if not target.layer and not isinstance(target.factory, nn.Module):
        with suppress(TypeError, ValueError):
            takes_any = any(
                p.kind is p.VAR_KEYWORD for p in inspect.signature(target.factory).parameters.values()
            )
    return [text for text in args if (parse_binding(text).name or "") in known or takes_any]


def _values(target: Target, texts: Sequence[str]) -> dict[str, Any]:
    """The values of `--arg` texts without dots, by name."""
    names = {**vars(target.module), "torch": torch, "nn": nn}
    values: dict[str, Any] = {}
    for text in texts:
        binding = parse_binding(text)
        if binding.name is None:
            raise UsageError(f"--arg `{printable(text)}` has no name", "write --arg NAME=EXPRESSION")
        where = f"--arg {printable(binding.dotted)}"
        value = partial(evaluate, binding.expression, names, where)
        values[binding.dotted] = run_user_code(target.environment, value)
    return values


def _fixed(target: Target, texts: Sequence[str]) -> dict[str, int]:
    """C, H and T where an argument or a default gives them."""
    if isinstance(target.factory, nn.Module):
        return _read_sizes(target.factory)
    found: dict[str, int] = {}
    values = _values(target, texts)
    for name, value in values.items():
        _note(found, name.rpartition(".")[2], value)
        inner = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
        if is_config_name(name) and isinstance(inner, Mapping):
            for key, item in inner.items():
                _note(found, str(key), item)
    if not target.layer:
        for name, p in _signature(target).items():
            if name not in values and p.default is not inspect.Parameter.empty:
                _note(found, name, p.default)
    return found


def _note(found: dict[str, int], name: str, value: Any) -> None:
    role, size = role_of(name), as_size(value)
    if role in HOUSE and size is not None and not _OUTPUT.search(name):
        found.setdefault(str(role), size)


def _read_sizes(module: nn.Module) -> dict[str, int]:
    """C, H and T of a module that was made already, from its attributes and its layers."""
    found: dict[str, int] = {}
    for child in module.modules():
        for name, value in list(vars(child).items()):
            if not name.startswith("_"):
                _note(found, name, value)
    if isinstance(module, nn.MultiheadAttention):
        return {"C": module.embed_dim, "H": module.num_heads}
    first = next((m for m in module.modules() if isinstance(m, nn.Linear)), None)
    if first is not None:
        found["C"] = first.in_features
    return found


def _construct(target: Target, texts: Sequence[str], sizes: Mapping[str, int], seed: int) -> Built:
    if isinstance(target.factory, nn.Module):
        return construct(target, (), seed=seed)
    if target.layer:
        return construct(target, _layer_arguments(target, texts, sizes), seed=seed)
    given = {parse_binding(text).name for text in texts}
    more = [
        f"{name}={sizes[str(role_of(name))]}"
        for name, p in _signature(target).items()
        if name not in given and p.default is inspect.Parameter.empty and role_of(name) in HOUSE
    ]

    def make(change: Change) -> Made:
        return Made(
            construct(
                target,
                [*texts, *more],
                seed=seed,
                variant=change.variant,
                instead=change.instead,
                fixed=change.fixed,
            )
        )

    built = settled(make(Change()), make).built
    if not built.config:
        return built
    nested = []
    dotted = {parse_binding(text).dotted for text in texts}
    for name, value in built.config.items():
        if name in given and not any(d.startswith(f"{name}.") for d in dotted):
            continue
        if isinstance(value, Mapping) and is_config_name(name) and name not in _values_named(texts):
            for key, item in value.items():
                role = role_of(str(key))
                wanted = sizes.get(str(role))
                if role in HOUSE and as_size(item) and item != wanted and f"{name}.{key}" not in dotted:
                    nested.append(f"{name}.{key}={wanted}")
    if not nested:
        return built
    again = construct(target, [*texts, *more, *nested], seed=seed)
    return again if again.error is None else built


def _values_named(texts: Sequence[str]) -> set[str]:
    return {b.name or "" for b in map(parse_binding, texts) if not b.path}


def _layer_arguments(target: Target, texts: Sequence[str], sizes: Mapping[str, int]) -> list[str]:
    """The constructor's arguments of a built-in layer, checked as the command line checks its options."""
    assert target.layer is not None
    layer = LAYERS[target.layer]
    values = _values(target, texts)
    options: dict[str, Any] = {}
    for name, value in values.items():
        option = name if name in layer.info.options else layer.arguments.get(name)
        if option is None or option in _NOT_SIZES:
            raise UsageError(
                f"`{target.layer}` has no argument `{printable(name)}`", nearest(name, _parameters(target))
            )
        options[option] = value
    for role, option in _OPTION.items():
        if option in layer.info.options and role in sizes:
            options.setdefault(option, sizes[role])
    if target.layer == "causal":
        options.setdefault("d_out", options["d_model"])
    try:
        resolved = layer_options.resolve(target.layer, **options)
    except UsageError as error:
        raise UsageError(_as_arguments(error.message), _as_arguments(error.hint)) from None
    return [f"{name}={value!r}" for name, value in resolved.arguments().items()]


def _as_arguments(text: str) -> str:
    """A complaint about `--heads 3` in the words of this command: `num_heads=3`."""
    for option, flag in layer_options.FLAGS.items():
        text = re.sub(rf"{flag} (\d\S*)", rf"{option}=\1", text).replace(flag, option)
    return text


def _facts(side: Side) -> None:
    """Heads, key/value heads and context, from the arguments and from what the module calls its numbers."""
    found: dict[str, int] = {}
    for name, value in side.built.config.items():
        for key, item in value.items() if isinstance(value, Mapping) else ((name, value),):
            role, size = role_of(str(key)), as_size(item)
            if role in ("H", "G", "T") and size:
                found.setdefault(str(role), size)
    module = side.built.module
    if module is not None:
        for child in module.modules():
            for name, value in list(vars(child).items()):
                role, size = role_of(name), as_size(value)
                if role in ("H", "G", "T") and size and not name.startswith("_"):
                    found.setdefault(str(role), size)
    side.heads, side.groups, side.context = found.get("H"), found.get("G"), found.get("T")
