"""How each kind of operation carries, permutes, splits or merges the dimensions of its inputs.

One function per kind, found through the `RULES` table by the operation's canonical name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from attnscope.axes.dims import Dim, Dims
from attnscope.axes.indexing import index_dims
from attnscope.axes.products import baddbmm, einsum, embedding, linear, matmul, mha, outer, sdpa
from attnscope.axes.reshape import group, merge, reshape
from attnscope.axes.said import Said, align
from attnscope.axes.state import Axes, argument, refs_of, shape_of
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
from attnscope.recorder.record import Event
from attnscope.recorder.tensors import Ref, refs_in

Rule = Callable[[Axes, Event], Sequence[Dims]]


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
    sizes = shape_of(axes, event)
    exprs = axes.expressions(event, len(sizes), "shape")
    return [reshape(axes, event, _first(axes, event), sizes, exprs)]


def _flatten(axes: Axes, event: Event) -> Sequence[Dims]:
    before = _first(axes, event)
    if not before:
        return [reshape(axes, event, before, shape_of(axes, event), [None])]
    start = int(argument(event, 1, "start_dim", 0)) % len(before)
    end = int(argument(event, 2, "end_dim", -1)) % len(before)
    if start == end:
        return [before]
    return [(*before[:start], merge(axes, event, list(before[start : end + 1]), None), *before[end + 1 :])]


def _unflatten(axes: Axes, event: Event) -> Sequence[Dims]:
    before, sizes = _first(axes, event), shape_of(axes, event)
    dim = int(argument(event, 1, "dim")) % len(before)
    count = len(sizes) - len(before) + 1
    exprs: list[Said] = [None] * count
    place = axes.place(event)
    if place is not None and isinstance(place[1], ast.Call) and place[1].args:
        last = place[1].args[-1]
        if isinstance(last, ast.Tuple | ast.List) and len(last.elts) == count:
            exprs = [*last.elts]
    parts = group(axes, event, [before[dim]], list(sizes[dim : dim + count]), exprs)
    return [(*before[:dim], *parts, *before[dim + 1 :])]


def _transpose(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = list(_first(axes, event))
    one, two = argument(event, 1, "dim0", 0), argument(event, 2, "dim1", 1)
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
    source, target = argument(event, 1, "source"), argument(event, 2, "destination")
    if not isinstance(source, int) or not isinstance(target, int):
        raise ValueError("several axes at once")
    rank = len(dims)
    moved = dims.pop(source % rank)
    dims.insert(target % rank, moved)
    return [tuple(dims)]


def _unsqueeze(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = list(_first(axes, event))
    place = int(argument(event, 1, "dim"))
    dims.insert(place if place >= 0 else place + len(dims) + 1, Dim(1))
    return [tuple(dims)]


def _squeeze(axes: Axes, event: Event) -> Sequence[Dims]:
    dims = _first(axes, event)
    place = argument(event, 1, "dim")
    if isinstance(place, int):
        place %= len(dims)
        return [tuple(d for i, d in enumerate(dims) if i != place or d.size != 1)]
    return [tuple(d for d in dims if d.size != 1)]


def _expand(axes: Axes, event: Event) -> Sequence[Dims]:
    before, sizes = _first(axes, event), shape_of(axes, event)
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
    before, sizes = _first(axes, event), shape_of(axes, event)
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
    place = int(argument(event, 2, "dim", event.kwargs.get("axis", 0))) % len(dims)
    whole = dims[place].root()
    count = len(event.outputs)
    sizes = [shape_of(axes, event, i)[place] for i in range(count)]
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
    place = int(argument(event, 1, "dim", 0)) % len(dims)
    return [(*dims[:place], *dims[place + 1 :])] * len(event.outputs)


def _cat(axes: Axes, event: Event) -> Sequence[Dims]:
    inputs = [axes.dims(ref) for ref in refs_in((event.args[0],))]
    place = int(argument(event, 1, "dim", event.kwargs.get("axis", 0))) % len(inputs[0])
    joined = [dims[place].root() for dims in inputs]
    size = shape_of(axes, event)[place]
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
    place = int(argument(event, 1, "dim", 0))
    dims.insert(place if place >= 0 else place + len(dims) + 1, Dim(len(inputs)))
    return [tuple(dims)]


def _reduce(axes: Axes, event: Event) -> Sequence[Dims]:
    dims, shape = _first(axes, event), shape_of(axes, event)
    over = argument(event, 1, "dim", event.kwargs.get("axis"))
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
    sizes = shape_of(axes, event)
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
    dims, sizes = _first(axes, event), shape_of(axes, event)
    return [tuple(d if d.size == size else Dim(size) for d, size in zip(dims, sizes, strict=True))]


def _getitem(axes: Axes, event: Event) -> Sequence[Dims]:
    return [index_dims(axes, event)]


def _like(axes: Axes, event: Event) -> Sequence[Dims]:
    target = axes.dims(refs_of(event)[1])
    return [reshape(axes, event, _first(axes, event), [d.size for d in target], [None] * len(target))]


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
    **dict.fromkeys(MATMULS - ADDED, matmul),
    **dict.fromkeys(ADDED, baddbmm),
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
    "linear": linear,
    "embedding": embedding,
    "scaled_dot_product_attention": sdpa,
    "multi_head_attention_forward": mha,
    "einsum": einsum,
    "outer": outer,
    "gather": _gather,
    "getitem": _getitem,
}
