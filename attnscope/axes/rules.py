"""How each kind of operation carries, permutes, splits or merges the dimensions of its inputs.

One function per kind, found through the `RULES` table by the operation's canonical name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnscope.axes.dims import Dim, Dims
from attnscope.ops.catalog import (
    ADDED,
    ARITHMETIC,
    COMPARISONS,
    FACTORIES,
    MATMULS,
    REDUCTIONS,
    REPEATS,
    SOFTMAXES,
)
from attnscope.ops.einsum import DOTS, read, spread
from attnscope.recorder.record import Event
from attnscope.recorder.tensors import Ref, refs_in

if TYPE_CHECKING:
    from attnscope.axes.naming import Axes

Rule = Callable[["Axes", Event], Sequence[Dims]]
Said = ast.expr | Dim | None  # what the source says of one size: an expression, or an axis of a whole shape


def refs_of(event: Event) -> list[int]:
    return [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]


def total(dims: Sequence[Dim]) -> int:
    size = 1
    for dim in dims:
        size *= dim.size
    return size


def atoms(dim: Dim) -> list[Dim]:
    root = dim.root()
    if root.factors is None:
        return [root]
    return [atom for factor in root.factors for atom in atoms(factor)]


def is_library(value: ast.expr) -> bool:
    """Whether `value.method(…)` is a function of a library (`torch.`, `F.`) rather than a method."""
    text = ast.unparse(value)
    return text in ("torch", "F", "nn.functional", "torch.nn.functional", "functional", "th", "tnf")


def is_rest(expr: Said) -> bool:
    """Whether a size is left open: `-1`."""
    return isinstance(expr, ast.UnaryOp) and isinstance(expr.operand, ast.Constant)


def is_one(expr: Said) -> bool:
    """Whether a size is the number 1 itself."""
    return isinstance(expr, ast.Constant) and expr.value == 1


def align(args: Sequence[Said], count: int) -> list[Said]:
    starred = next((i for i, arg in enumerate(args) if isinstance(arg, ast.Starred)), None)
    if starred is None:
        return list(args) if len(args) == count else [None] * count
    after = len(args) - starred - 1
    missing = count - starred - after
    if missing < 0:
        return [None] * count
    return [*args[:starred], *[None] * missing, *args[len(args) - after :]]


def _argument(event: Event, place: int, name: str, default: Any = None) -> Any:
    if name in event.kwargs:
        return event.kwargs[name]
    return event.args[place] if len(event.args) > place else default


def _out(axes: Axes, event: Event, which: int = 0) -> tuple[int, ...]:
    return tuple(axes.recording.made[event.outputs[which]][0])


def _first(axes: Axes, event: Event) -> Dims:
    return axes.dims(next(iter(refs_of(event))))


def _elementwise(axes: Axes, event: Event) -> Sequence[Dims]:
    result = axes.broadcast([axes.dims(ref) for ref in refs_of(event)])
    if result and result[-1].label == "S":
        for ref in refs_of(event):  # a padding mask made over tokens is read over keys
            dims = axes.dims(ref)
            if dims and dims[-1].label == "T" and dims[-1].size == result[-1].size:
                axes.seen_as[(axes.index, ref)] = (*dims[:-1], result[-1])
    return [result]


def _keep(axes: Axes, event: Event) -> Sequence[Dims]:
    return [_first(axes, event)] * len(event.outputs)


def _view(axes: Axes, event: Event) -> Sequence[Dims]:
    sizes = _out(axes, event)
    exprs = axes.expressions(event, len(sizes), "shape")
    return [axes.reshape(event, _first(axes, event), sizes, exprs)]


def _flatten(axes: Axes, event: Event) -> Sequence[Dims]:
    before = _first(axes, event)
    if not before:
        return [axes.reshape(event, before, _out(axes, event), [None])]
    start = int(_argument(event, 1, "start_dim", 0)) % len(before)
    end = int(_argument(event, 2, "end_dim", -1)) % len(before)
    if start == end:
        return [before]
    return [(*before[:start], axes.merge(event, list(before[start : end + 1]), None), *before[end + 1 :])]


def _unflatten(axes: Axes, event: Event) -> Sequence[Dims]:
    before, sizes = _first(axes, event), _out(axes, event)
    dim = int(_argument(event, 1, "dim")) % len(before)
    count = len(sizes) - len(before) + 1
    exprs: list[Said] = [None] * count
    place = axes.place(event)
    if place is not None and isinstance(place[1], ast.Call) and place[1].args:
        last = place[1].args[-1]
        if isinstance(last, ast.Tuple | ast.List) and len(last.elts) == count:
            exprs = [*last.elts]
    parts = axes.group(event, [before[dim]], list(sizes[dim : dim + count]), exprs)
    return [(*before[:dim], *parts, *before[dim + 1 :])]


def _transpose(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = list(_first(axes, event))
    one, two = _argument(event, 1, "dim0", 0), _argument(event, 2, "dim1", 1)
    one = event.kwargs.get("axis0", one)
    two = event.kwargs.get("axis1", two)
    dims[one], dims[two] = dims[two], dims[one]
    return [tuple(dims)]


def _last_two(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = _first(axes, event)
    return [(*dims[:-2], dims[-1], dims[-2])]


def _reverse(axes: Axes, event: Event) -> Sequence[Dims]:
    return [tuple(reversed(_first(axes, event)))]


def permutation(event: Event, rank: int) -> list[int]:
    """The order that a `permute` call asks for."""
    order = event.kwargs.get("dims", event.args[1:])
    if len(order) == 1 and isinstance(order[0], tuple):
        order = order[0]
    return [int(place) % rank for place in order]


def _permute(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = _first(axes, event)
    return [tuple(dims[place] for place in permutation(event, len(dims)))]


def _movedim(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = list(_first(axes, event))
    source, target = _argument(event, 1, "source"), _argument(event, 2, "destination")
    if not isinstance(source, int) or not isinstance(target, int):
        raise ValueError("several axes at once")
    rank = len(dims)
    moved = dims.pop(source % rank)
    dims.insert(target % rank, moved)
    return [tuple(dims)]


def _unsqueeze(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = list(_first(axes, event))
    place = int(_argument(event, 1, "dim"))
    dims.insert(place if place >= 0 else place + len(dims) + 1, Dim(1))
    return [tuple(dims)]


def _squeeze(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = _first(axes, event)
    place = _argument(event, 1, "dim")
    if isinstance(place, int):
        place %= len(dims)
        return [tuple(d for i, d in enumerate(dims) if i != place or d.size != 1)]
    return [tuple(d for d in dims if d.size != 1)]


def _expand(axes: Axes, event: Event) -> Sequence[Dims]:
    before, sizes = _first(axes, event), _out(axes, event)
    exprs = axes.expressions(event, len(sizes))
    padded = [None] * (len(sizes) - len(before)) + list(before)
    result = []
    for dim, size, expr in zip(padded, sizes, exprs, strict=True):
        if dim is not None and dim.size == size:
            result.append(dim)
        else:
            result.append(axes.factor(event, expr, size) or Dim(size))
    return [tuple(result)]


def _repeat(axes: Axes, event: Event) -> Sequence[Dims]:
    before, sizes = _first(axes, event), _out(axes, event)
    padded = [None] * (len(sizes) - len(before)) + list(before)
    result = []
    for dim, size in zip(padded, sizes, strict=True):
        if dim is not None and dim.size == size:
            result.append(dim)
        elif dim is not None and dim.label in ("G", "B") and axes.space.find("H", size):
            result.append(axes.space.named("H", size))
        else:
            result.append(Dim(size))
    return [tuple(result)]


def _split(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = _first(axes, event)
    place = int(_argument(event, 2, "dim", event.kwargs.get("axis", 0))) % len(dims)
    whole = dims[place].root()
    count = len(event.outputs)
    sizes = [_out(axes, event, i)[place] for i in range(count)]
    exprs: list[Said] = [None] * count
    found = axes.place(event)
    if found is not None and isinstance(found[1], ast.Call):
        lists = [
            a
            for a in [*found[1].args, *(k.value for k in found[1].keywords)]
            if isinstance(a, ast.List | ast.Tuple)
        ]
        if lists and len(lists[0].elts) == count:
            exprs = list(lists[0].elts)
    parts: list[Dim] = []
    for size, expr in zip(sizes, exprs, strict=True):
        if whole.times is not None and size % whole.times[1].size == 0:
            parts.append(axes.space.multiple(size // whole.times[1].size, whole.times[1]))
        elif size == whole.size:
            parts.append(whole)
        elif whole.factors is not None and len(whole.factors) == 2 and size == whole.factors[1].size:
            parts.append(whole.factors[1])
        elif len(set(sizes)) == 1 and whole.known:
            parts.append(axes.space.part(whole, count))
        else:
            parts.append(axes.factor(event, expr, size) or Dim(size))
    return [(*dims[:place], part, *dims[place + 1 :]) for part in parts]


def _unbind(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = _first(axes, event)
    place = int(_argument(event, 1, "dim", 0)) % len(dims)
    return [(*dims[:place], *dims[place + 1 :])] * len(event.outputs)


def _cat(axes: Axes, event: Event) -> Sequence[Dims]:
    inputs = [axes.dims(ref) for ref in refs_in((event.args[0],))]
    place = int(_argument(event, 1, "dim", event.kwargs.get("axis", 0))) % len(inputs[0])
    joined = [dims[place].root() for dims in inputs]
    size = _out(axes, event)[place]
    whole: Dim
    if len(joined) == 1:
        whole = joined[0]
    elif any(dim.label in ("T", "S") for dim in joined):
        whole = axes.space.named("S", size) if size != joined[-1].size else joined[-1]
    elif all(dim is joined[0] for dim in joined):
        whole = _several(axes, inputs, joined[0], len(joined))
    else:
        whole = Dim(size)
    base = axes.broadcast([(*dims[:place], *dims[place + 1 :]) for dims in inputs], equal=True)
    return [(*base[:place], whole, *base[place:])]


def _several(axes: Axes, inputs: Sequence[Dims], one: Dim, count: int) -> Dim:
    """What `count` equal axes make when they are joined."""
    if one.part is not None and one.part[1] == count:
        return one.part[0]
    channels = axes.space.find("C")
    if channels is not None:
        heads = [
            dim
            for dim in map(Dim.root, inputs[0])
            if dim.size * count == channels.size
            and (dim.label == "D" or (dim.part is not None and dim.part[0].label == "C"))
        ]
        if one.label == "D" and heads:
            return channels
        if one.label == "B" and heads:  # each head's own part of the channels, one below the other
            return axes.space.composite([axes.heads(count), one])
    return axes.space.multiple(count, one)


def _stack(axes: Axes, event: Event) -> Sequence[Dims]:
    inputs = [axes.dims(ref) for ref in refs_in((event.args[0],))]
    dims = list(axes.broadcast(inputs, equal=True))
    place = int(_argument(event, 1, "dim", 0))
    dims.insert(place if place >= 0 else place + len(dims) + 1, Dim(len(inputs)))
    return [tuple(dims)]


def _matmul(axes: Axes, event: Event) -> Sequence[Dims]:
    left, right = refs_of(event)[:2]
    return [_project_or_multiply(axes, event, left, right)]


def _baddbmm(axes: Axes, event: Event) -> Sequence[Dims]:
    base, left, right = refs_of(event)[:3]
    result = _project_or_multiply(axes, event, left, right)
    axes.broadcast([result, axes.dims(base)])
    return [result]


def _project_or_multiply(axes: Axes, event: Event, left: int, right: int) -> Dims:
    first, second = axes.dims(left), axes.dims(right)
    if right in axes.recording.leaves and len(second) == 2 and not second[-1].known:
        return (*first[:-1], axes.projection(event, first[-1], second[-1].size))
    return axes.product(first, second, left, right)


def _linear(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = _first(axes, event)
    return [(*dims[:-1], axes.projection(event, dims[-1], _out(axes, event)[-1]))]


def _embedding(axes: Axes, event: Event) -> Sequence[Dims]:
    ids, table = refs_of(event)[:2]
    if "float" in str(axes.recording.made[ids][2]):  # torch.embedding(weight, ids) has them the other way
        ids, table = table, ids
    size = _out(axes, event)[-1]
    other = axes.space.find("C")
    channels = axes.space.named("C", size) if other is None or other.size == size else Dim(size)
    return [(*axes.dims(ids), channels)]


def _sdpa(axes: Axes, event: Event) -> Sequence[Dims]:
    query, value = axes.dims(_argument(event, 0, "query")), axes.dims(_argument(event, 2, "value"))
    key_ref = _argument(event, 1, "key")
    key = axes.dims(key_ref)
    if key[-2].label == "T":
        as_keys = axes.space.named("S", key[-2].size)
        axes.seen_as[(axes.index, int(key_ref))] = (*key[:-2], as_keys, key[-1])
        value_ref = int(_argument(event, 2, "value"))
        axes.seen_as[(axes.index, value_ref)] = (*value[:-2], as_keys, value[-1])
    if query[-2].label == "T":
        axes.head_axis(query[-1])
        if not key[-1].known:
            key[-1].become(query[-1])
        axes.head_axis(value[-1])
    mask = _argument(event, 3, "attn_mask")
    if isinstance(mask, Ref):
        keys = axes.space.named("S", key[-2].size)
        axes.broadcast([(*query[:-2], query[-2], keys), axes.dims(mask)])
    return [(*query[:-1], value[-1])]


def _mha(axes: Axes, event: Event) -> Sequence[Dims]:
    query, key = axes.dims(event.args[0]), axes.dims(event.args[1])
    outputs = [query]
    if len(event.outputs) > 1:
        shape = _out(axes, event, 1)
        keys = axes.space.named("S", key[0].size)
        batch = [query[1]] if len(query) == 3 else []
        heads = [axes.space.named("H", shape[1])] if len(shape) == len(batch) + 3 else []
        outputs.append((*batch, *heads, query[0], keys))
    return outputs


def _einsum(axes: Axes, event: Event) -> Sequence[Dims]:
    equation = read(event.args[0])
    if equation is None:
        raise ValueError("operands and axes by turns")
    known: dict[str, Dim] = {}
    rest: Dims = ()
    for letters, ref in zip(equation.inputs, refs_of(event), strict=True):
        dims = axes.dims(ref)
        named = list(zip(spread(letters, len(dims)), dims, strict=True))
        dots = tuple(dim for letter, dim in named if letter == DOTS)
        rest = axes.broadcast([rest, dots]) if rest and dots else rest or dots
        for letter, dim in named:
            other = dim if letter == DOTS else known.setdefault(letter, dim)
            if other is not dim:
                if not other.known and dim.known:
                    known[letter] = dim
                elif other.known and not dim.known and other.size == dim.size:
                    dim.become(other)
    result = [dim for x in equation.output for dim in (rest if x == DOTS else (known[x],))]
    tokens = [i for i, dim in enumerate(result) if dim.label == "T"]
    if len(tokens) == 2:
        result[tokens[1]] = axes.space.named("S", result[tokens[1]].size)
        for letter, dim in known.items():
            if letter not in equation.output:
                axes.head_axis(dim)
    return [tuple(result)]


def _outer(axes: Axes, event: Event) -> Sequence[Dims]:
    left, right = refs_of(event)[:2]
    return [(*axes.dims(left), *axes.dims(right))]


def _reduce(axes: Axes, event: Event) -> Sequence[Dims]:
    dims, shape = _first(axes, event), _out(axes, event)
    over = _argument(event, 1, "dim", event.kwargs.get("axis"))
    if isinstance(over, Ref | bool) or over is None:
        gone = set(range(len(dims)))
    else:
        gone = {int(place) % len(dims) for place in (over if isinstance(over, tuple) else (over,))}
    if len(shape) == len(dims):
        kept = tuple(Dim(1) if i in gone else dim for i, dim in enumerate(dims))
    else:
        kept = tuple(dim for i, dim in enumerate(dims) if i not in gone)
    return [kept] * len(event.outputs)


def _factory(axes: Axes, event: Event) -> Sequence[Dims]:
    sizes = _out(axes, event)
    exprs = axes.expressions(event, len(sizes), "size")
    place = axes.place(event)
    if event.op.name == "eye" and len(sizes) == 2:
        exprs = [exprs[0] if exprs else None] * 2
        if place is not None and isinstance(place[1], ast.Call) and place[1].args:
            exprs = [place[1].args[0]] * 2
    if event.op.name == "full" and place is not None and isinstance(place[1], ast.Call):
        first = place[1].args[0] if place[1].args else None
        exprs = align(list(first.elts), len(sizes)) if isinstance(first, ast.Tuple | ast.List) else exprs
    if event.op.name == "arange" and place is not None and isinstance(place[1], ast.Call):
        args = place[1].args
        zero = len(args) == 2 and isinstance(args[0], ast.Constant) and args[0].value == 0
        exprs = [args[0] if len(args) == 1 else args[1] if zero else None]
    dims = [axes.factor(event, expr, size) or Dim(size) for expr, size in zip(exprs, sizes, strict=True)]
    return [tuple(dims)]


def _gather(axes: Axes, event: Event) -> Sequence[Dims]:
    dims, sizes = _first(axes, event), _out(axes, event)
    return [tuple(d if d.size == size else Dim(size) for d, size in zip(dims, sizes, strict=True))]


def _getitem(axes: Axes, event: Event) -> Sequence[Dims]:
    return [axes.index_dims(event)]


def _like(axes: Axes, event: Event) -> Sequence[Dims]:
    target = axes.dims(refs_of(event)[1])
    return [axes.reshape(event, _first(axes, event), [d.size for d in target], [None] * len(target))]


_ELEMENTWISE = """pow neg and or xor masked_fill where minimum maximum remainder floor_divide
    logical_and logical_or lerp addcmul fmod dropout""".split()

RULES: Mapping[str, Rule] = {
    **dict.fromkeys([*_ELEMENTWISE, *ARITHMETIC, *COMPARISONS, *SOFTMAXES], _elementwise),
    **dict.fromkeys(["view", "reshape"], _view),
    **dict.fromkeys(["flatten", "ravel"], _flatten),
    **dict.fromkeys(["view_as", "reshape_as"], _like),
    **dict.fromkeys(["setitem", "layer_norm", "rms_norm", "contiguous", "clone", "copy"], _keep),
    **dict.fromkeys(["mT", "mH", "adjoint"], _last_two),
    **dict.fromkeys(["T", "H", "t"], _reverse),
    **dict.fromkeys(["split", "chunk", "tensor_split", "split_with_sizes"], _split),
    **dict.fromkeys(REPEATS, _repeat),
    **dict.fromkeys(MATMULS - ADDED, _matmul),
    **dict.fromkeys(ADDED, _baddbmm),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(FACTORIES, _factory),
    "unflatten": _unflatten,
    "transpose": _transpose,
    "permute": _permute,
    "movedim": _movedim,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "unbind": _unbind,
    "cat": _cat,
    "stack": _stack,
    "linear": _linear,
    "embedding": _embedding,
    "scaled_dot_product_attention": _sdpa,
    "multi_head_attention_forward": _mha,
    "einsum": _einsum,
    "outer": _outer,
    "gather": _gather,
    "getitem": _getitem,
}
