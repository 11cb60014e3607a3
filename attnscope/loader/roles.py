"""What the parameters of a `forward` are for, by name, annotation and by how the source unpacks them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from attnscope.loader.names import role_of

_EMPTY = inspect.Parameter.empty

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        (
            "tokens",
            r"^(idx|in_idx|(decoder_|encoder_)?input_ids|tokens?|(input_)?token_ids?|token_idx|ids|toks|input_tokens)$",
        ),
        (
            "padding",
            r"key_?padding_?mask|padding_?mask|pad_?mask|src_key_padding|^pad(ding)?$|^keep$|^valid$|valid_mask|^pads$",
        ),
        ("head_mask", r"head_mask"),
        ("lengths", r"cu_seq_?lens?"),
        ("bias", r"alibi|rel(ative)?_pos|pos(ition)?_bias|(?<!attn_)(?<!attention_)bias$"),
        ("image", r"^(img|imgs|image|images|pixel_values|pixels|picture)$"),
        ("mask", r"mask|^attn_bias$|attention_bias|^block(ed)?$|^allowed$"),
        ("cos", r"^(.*_)?cos(_.*)?$"),
        ("sin", r"^(.*_)?sin(_.*)?$"),
        ("complex", r"freqs?_?cis|freqs_complex|rope_freqs|freq_cis"),
        ("angles", r"^freqs?$|rotary_freqs|^rotary_emb$|^pos_freqs"),
        (
            "pair",
            r"position_embeddings?|^rope$|rotary_pos_emb|rope_cache|cos_sin|rotary_embs?|rope_emb|^pe$|image_rotary_emb",
        ),
        (
            "positions",
            r"position_?ids?|write_indices|^indices$|input_positions|^positions?$|^pos$|input_pos|cache_position|pos_ids|token_positions|input_positions|^position_id",
        ),
        ("start", r"start_?pos|^offset$|seqlen_offset|past_len|^start$|start_idx|cur_pos"),
        (
            "cache",
            r"cache|^past|layer_past|^state$|^states$|^prev|^incremental_state$|^mem(s)?$|block_tables?",
        ),
        (
            "memory",
            r"encoder_hidden|encoder_out|^memory$|^context$|^enc(?!.*mask)(_.*)?$|^xa$|^kv$|key_value_states|encoder_states|cross_states|x_kv|^ctx$|^src$|^source$|^(src|e|encoder|source)_(enc|out|output|states?|hidden|x|seq)s?$|^memories$|kv_states",
        ),
        ("condition", r"^cond(ition(ing)?)?$|^y$|^c$|^context_emb"),
        ("key", r"^(query|queries|q|key|keys|k)_(pe|pos|pos_embed)$"),
        ("query", r"^(query|queries|q|xq|query_states|query_layer|q_input|x_q)$"),
        ("key", r"^(key|keys|k|xk|key_states|key_layer|x_k)$"),
        ("value", r"^(value|values|v|xv|value_states|value_layer|x_v)$"),
        ("causal", r"^(is_)?causal$|^use_causal_mask$"),
        ("flag", r"^(use|output|return|need|is|has|do|should|average|training|verbose|deterministic)(_|$)"),
        (
            "seqlen",
            r"^(seq_?len(gth)?|t|l|n|length|tgt_len|max_seqlen|max_seq_len(gth)?|sequence_length|q_len|num_tokens)$",
        ),
        ("counts", r"(^|_)len(gth)?s?$"),
        ("batch", r"^(b|bsz|batch|batch_size)$"),
        ("height", r"^(h|height|hh)$"),
        ("width", r"^(w|width|ww)$"),
        ("index", r"layer_(idx|id|index|num)|^layer$|block_idx"),
        ("timestep", r"^(timesteps?|time|temb|sigma|labels?|class_labels)$"),
    )
)

# A sequence that is made, and the one that it is made from, as both stand in one call.
_GOAL = re.compile(r"(^|_)(tgt|trg|targets?|dec(oder)?|outputs?)(_|$)(?!.*(mask|pad|len|pos))|^dec\w*$")
_ORIGIN = re.compile(r"(^|_)(src|source|sources|enc(oder)?|inputs?|input_ids)(_|$)|^(x|enc\w*|inp)$")

_TIME = {
    "t",
    "l",
    "seq",
    "seqlen",
    "seq_len",
    "tgt_len",
    "sq",
    "slen",
    "src_len",
    "length",
    "n_tokens",
    "q_len",
    "seq_length",
    "target_len",
    "time",
    "s",
}
_BATCH = {"b", "bsz", "bs", "batch", "batch_size", "n", "nbatches", "bsize", "batchsize"}
_HEADS = {"h", "nh", "heads", "head", "n_head", "n_heads", "num_heads", "g"}
_NUMBERS = ("seqlen", "counts", "batch", "height", "width")
_IMAGE = {"h", "w", "height", "width", "hh", "ww", "x", "y"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of `forward`. `role` is what it is for; `required` when it has no default."""

    name: str
    role: str
    required: bool
    default: Any
    keyword_only: bool


@dataclass(frozen=True, slots=True)
class Unpacked:
    """`b, t, c = x.shape`: the rank that the source expects of `x`, and the names that it gives the axes."""

    rank: int
    names: tuple[str, ...]

    @property
    def layout(self) -> str | None:
        """`tbc`, `btc`, `image`, `bhwc`, `heads` or `nc` where the names say so."""
        low = [n.lower().strip("_") for n in self.names]
        if self.rank == 4:
            if low[2] in _IMAGE and low[3] in _IMAGE and low[2] != low[3]:
                return "image"
            if (
                low[1] in _IMAGE
                and low[2] in _IMAGE
                and low[1] != low[2]
                and low[3] not in ("d", "hd", "dim", "head_dim", "t", "n")
            ):
                return "bhwc"
            return "bthd" if low[1] in _TIME and low[2] in _HEADS else "heads"
        if self.rank == 3:
            return "tbc" if low[0] in _TIME and low[1] in _BATCH and low[0] not in ("n",) else "btc"
        return "nc" if self.rank == 2 else None


def forward_parameters(module: nn.Module) -> list[Parameter]:
    """The parameters of the module's `forward`, in order; `*args` and `**kwargs` are left out."""
    try:
        signature = inspect.signature(module.forward)
        found = list(signature.parameters.values())
    except KeyboardInterrupt:
        raise
    except BaseException:
        return [Parameter("x", "main", True, _EMPTY, False)]
    if any(p.kind is p.VAR_POSITIONAL for p in found) and not _positional(found):
        found = [*_passed_on(module), *found]
    made: list[Parameter] = []
    seen: set[str] = set()
    for p in found:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.name in seen:
            continue
        seen.add(p.name)
        role = _role(p, first=not made)
        made.append(Parameter(p.name, role, p.default is _EMPTY, p.default, p.kind is p.KEYWORD_ONLY))
    return _paired(made)


def _paired(made: list[Parameter]) -> list[Parameter]:
    """Of a source and a target that is made from it the target is the main one, as outputs follow it."""
    goal = next((p for p in made[1:] if p.required and _GOAL.search(p.name.lower())), None)
    if goal is None or not made[0].required or made[0].role not in ("main", "tokens", "memory"):
        return made
    if not _ORIGIN.search(made[0].name.lower()):
        return [replace(p, role="memory") if p is goal else p for p in made]
    roles = {goal.name: "main", made[0].name: "memory"}
    return [replace(p, role=roles.get(p.name, p.role)) for p in made]


def _positional(found: list[inspect.Parameter]) -> list[inspect.Parameter]:
    return [p for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _passed_on(module: nn.Module) -> list[inspect.Parameter]:
    """What `*args` hands to the forward of a base class; one tensor where no base says."""
    own = {p for p in inspect.signature(module.forward).parameters.values() if p.kind is p.KEYWORD_ONLY}
    keywords = {p.name for p in own}
    for cls in type(module).__mro__[1:]:
        if cls is nn.Module:
            break
        if "forward" in cls.__dict__:
            base = list(inspect.signature(cls.__dict__["forward"]).parameters.values())[1:]
            if _positional(base):
                return [p for p in _positional(base) if p.name not in keywords]
    return [inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD)]


def _role(p: inspect.Parameter, first: bool) -> str:
    name = p.name.lower().strip("_")
    if p.annotation in (bool, "bool"):
        return "causal" if "causal" in name else "flag"
    if isinstance(p.default, bool):
        return "causal" if "causal" in name else "flag"
    role = next((r for r, pattern in _RULES if pattern.search(name)), None)
    if p.annotation in (int, "int") and role not in ("start", "index", "batch", "height", "width"):
        return "start" if role == "positions" else "seqlen"
    if first and role in (
        None,
        "memory",
        "seqlen",
        "counts",
        "batch",
        "height",
        "width",
        "flag",
        "cache",
        "timestep",
    ):
        return "main"
    return role or "other"


def unpacked(tree: ast.AST | None, parameter: str) -> Unpacked | None:
    """How the source of `forward` unpacks the shape of `parameter`, if it does."""
    if tree is None:
        return None
    aliases = {parameter}
    assigned = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and len(n.targets) == 1]
    for node in sorted(assigned, key=lambda n: (n.lineno, n.col_offset)):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and target.id == parameter and _may_change_rank(value):
            return None
        if not isinstance(target, (ast.Tuple, ast.List)):
            continue
        if any(isinstance(e, ast.Starred) for e in target.elts):
            continue
        text = ast.unparse(value)
        if any(text in (f"{a}.shape", f"{a}.size()", f"tuple({a}.shape)") for a in aliases):
            return Unpacked(len(target.elts), tuple(ast.unparse(e) for e in target.elts))
    return None


def _may_change_rank(value: ast.expr) -> bool:
    """What a name is given anew has the rank that it had only where one function of one argument made it."""
    plain = ("float", "to", "contiguous", "type_as", "clone", "detach", "half", "double", "bfloat16")
    match value:
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in plain:
            return False
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attr), args=[_], keywords=[]):
            return "head" in attr or "split" in attr
        case ast.BinOp() | ast.Name() | ast.IfExp():
            return False
    return True


def least_rank(tree: ast.AST | None, parameter: str) -> int | None:
    """3 where the source reads `x.shape[2]` or `x.size(2)`, 4 for index 3; None where it does not say."""
    found = [0]
    for node in ast.walk(tree) if tree is not None else ():
        match node:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(value=int(i))
            ):
                found += [i + 1] if name == parameter else []
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[ast.Constant(value=int(i))]
            ):
                found += [i + 1] if name == parameter else []
    return max(found) if max(found) >= 3 else None


def forward_tree(tree: ast.Module, module: nn.Module) -> ast.AST | None:
    """The AST of the `forward` that the module's class (or the nearest base in the same file) defines."""
    classes = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    for cls in type(module).__mro__:
        node = classes.get(cls.__name__)
        for item in node.body if node is not None else ():
            if isinstance(item, ast.FunctionDef) and item.name == "forward":
                return item
    return None


def class_source(tree: ast.Module, module: nn.Module) -> str:
    """The source of the module's classes in this file, as text without comments."""
    names = {cls.__name__ for m in module.modules() for cls in type(m).__mro__}
    return "\n".join(ast.unparse(n) for n in tree.body if isinstance(n, ast.ClassDef) and n.name in names)


def mask_convention(source: str, name: str) -> str | None:
    """`allowed`, `blocked` or `additive`: what the source does with its mask, where a glance can tell."""
    for mask in (re.escape(name), r"\w*mask\w*"):
        indexed = rf"(?:self\.)?{mask}(?:\[[^\]]*\])*(?:\.\w+\([^()]*\))*"
        tests: Mapping[str, str] = {
            "allowed": rf"{indexed}\s*==\s*(0|False)\b|~\s*{indexed}|"
            rf"logical_not\(\s*{indexed}|{indexed}\.logical_not|"
            rf"\b1(\.0)?\s*-\s*{indexed}|{indexed}\.eq\(0\)|{indexed}\s*!=\s*1|{indexed}\s*<\s*0\.5",
            "blocked": rf"masked_fill_?\(\s*{indexed}\s*,|{indexed}\s*==\s*(1|True)\b|"
            rf"masked_fill_?\(mask=\s*{indexed}",
            "additive": rf"\+=?\s*{indexed}|add_?\(\s*{indexed}|baddbmm\(\s*{indexed}",
        }
        for convention, pattern in tests.items():
            if re.search(pattern, source):
                return convention
    return None


def axes_added(source: str, name: str) -> int:
    """How many axes of size 1 the source gives a mask before it is used: 2 for `mask[:, None, None]`."""
    subscripts = re.findall(rf"\b{re.escape(name)}\[([^\]]*)\]", source)
    return max((len(re.findall(r"\bNone\b", inside)) for inside in subscripts), default=0)


def makes_own_mask(source: str) -> bool:
    """The class builds a causal mask itself, so an optional mask argument is for something else."""
    return bool(re.search(r"\btril|\btriu|(?<!self\.)\bis_causal\s*=\s*True", source))


def reserved_ids(module: nn.Module, arguments: Mapping[str, Any]) -> frozenset[int]:
    """Token ids that mean padding or another mark, which a made text does not hold: 0, and what is said."""
    said = [value for name, value in arguments.items() if role_of(name) == "mark"]
    said += [part.padding_idx for part in module.modules() if isinstance(part, nn.Embedding)]
    return frozenset({0, *(value for value in said if type(value) is int and value >= 0)})
