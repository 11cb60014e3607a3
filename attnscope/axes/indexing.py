"""What `x[…]` does to the names of axes."""

from __future__ import annotations

import ast

from attnscope.axes.dims import Dim, Dims
from attnscope.axes.said import Said
from attnscope.axes.state import Axes
from attnscope.recorder.record import Event
from attnscope.recorder.tensors import Ref


def index_dims(axes: Axes, event: Event) -> Dims:
    """The dimensions of `x[…]`."""
    before = list(axes.dims(event.args[0]))
    items = event.args[1] if isinstance(event.args[1], tuple) else (event.args[1],)
    exprs = _index_expressions(axes, event, len(items))
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    out = list(axes.recording.made[event.outputs[0]][0])
    result: list[Dim] = []
    place = 0
    for item, expr in zip(items, exprs, strict=True):
        if item is Ellipsis:
            keep = len(before) - used
            result += before[place : place + keep]
            place += keep
        elif item is None:
            result.append(Dim(1))
        elif isinstance(item, Ref):
            index = axes.dims(item)
            if "bool" in str(axes.recording.made[item][2]):
                raise ValueError("a boolean index")
            result += index
            place += 1
        elif isinstance(item, int):
            place += 1
        elif isinstance(item, slice):
            size = out[len(result)]
            result.append(_slice(axes, event, before[place], size, item, expr, event.args[0]))
            place += 1
        else:
            raise ValueError("an index of another kind")
    result += before[place:]
    return tuple(result)


def _slice(axes: Axes, event: Event, dim: Dim, size: int, item: slice, expr: Said, _: int) -> Dim:
    if size == dim.size:
        return dim
    if isinstance(expr, ast.Slice) and expr.upper is not None and expr.lower is None:
        named = axes.factor(event, expr.upper, size)
        if named is not None:
            return named
    root = dim.root()
    if root.times is not None and size % root.times[1].size == 0:
        return axes.space.multiple(size // root.times[1].size, root.times[1])
    if root.label in ("T", "S", "B"):
        return axes.space.named(str(root.label), size)
    if root.known and root.label == "D" and size * 2 == dim.size:
        return axes.space.part(root, 2)
    return Dim(size)


def _index_expressions(axes: Axes, event: Event, count: int) -> list[Said]:
    place = axes.place(event)
    if place is None or not isinstance(place[1], ast.Subscript):
        return [None] * count
    inner = place[1].slice
    items = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    return list(items) if len(items) == count else [None] * count
