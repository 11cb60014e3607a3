"""Naming axes: the input is B, T, C; each recorded call carries, permutes, splits or merges the names.

The rule of each kind of operation stands in `attnscope.axes.rules`; whatever has none keeps the names of
axes that kept their place and size.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from attnscope.axes.dims import Dim, Dims
from attnscope.axes.rules import RULES
from attnscope.axes.state import Axes, refs_of
from attnscope.axes.vocabulary import letter_of
from attnscope.ops.catalog import plain
from attnscope.recorder.record import Event, Recording
from attnscope.source import node_at


def named(recording: Recording) -> Axes:
    """Walk a recording once and give each tensor its dimensions."""
    axes = Axes(recording)
    _arguments(axes)
    _walk(axes)
    return axes


def _walk(axes: Axes) -> None:
    sizes = iter(axes.recording.sizes)
    waiting = next(sizes, None)
    for index, event in enumerate(axes.recording.events):
        while waiting is not None and waiting[2] <= index:
            _size(axes, *waiting)
            waiting = next(sizes, None)
        _event(axes, index, event)
    while waiting is not None:
        _size(axes, *waiting)
        waiting = next(sizes, None)


def _event(axes: Axes, index: int, event: Event) -> None:
    axes.index = index
    outputs = [axes.recording.made[serial][0] for serial in event.outputs]
    named: Sequence[Dims] | None = None
    rule = RULES.get(event.op.name) or RULES.get(plain(event.op.name))
    if rule is not None and outputs:
        try:
            named = rule(axes, event)
        except (IndexError, ValueError, TypeError, KeyError, StopIteration):
            named = None  # arguments in a form that the rule does not know: fall back
    for position, (serial, shape) in enumerate(zip(event.outputs, outputs, strict=True)):
        dims = named[position] if named is not None and position < len(named) else None
        if dims is None or tuple(dim.size for dim in dims) != tuple(shape):
            dims = _carry(axes, event, shape)
        axes.of[serial] = _square(axes, dims)


def _size(axes: Axes, code: Any, lasti: int, index: int, frozen: tuple[Any, ...]) -> None:
    place = node_at(code, lasti)
    if place is None or not frozen:
        return
    dims = axes.dims(frozen[0])
    node = place[1]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        axes.scope.saw_size(*place, dims[0])
    elif len(frozen) > 1 and isinstance(frozen[1], int):
        if -len(dims) <= frozen[1] < len(dims):
            axes.scope.saw_size(*place, dims[frozen[1]])
    else:
        axes.scope.saw_size(*place, dims)


def _arguments(axes: Axes) -> None:
    made = axes.recording.made
    first: Dims | None = None
    for name, serial in axes.recording.arguments:
        shape = tuple(made[serial][0])
        given = axes.recording.input_axes.get(name)
        if given is not None and len(given) == len(shape):
            dims = tuple(
                axes.space.named(letter, size) if letter else Dim(size)
                for letter, size in zip(given, shape, strict=True)
            )
        else:
            dims = _guess(axes, serial, name, shape, str(made[serial][2]), first)
        axes.of[serial] = dims
        first = first or dims


def _guess(
    axes: Axes, serial: int, name: str, shape: tuple[int, ...], dtype: str, first: Dims | None
) -> Dims:
    floating = "float" in dtype
    named = axes.space.named
    if first is None:
        letters = _layout(axes, serial) or {
            (3, True): "BTC",
            (4, True): "BHTD",
            (2, True): "TC",
            (2, False): "BT",
            (1, False): "T",
        }.get((len(shape), floating))
        if letters is None:
            return tuple(Dim(size) for size in shape)
        return tuple(named(letter, size) for letter, size in zip(letters, shape, strict=True))
    if "mask" in name or not floating or "bias" in name:
        tail = ["B", "H", "T", "S"][-len(shape) :] if len(shape) <= 4 else []
        if len(shape) == 2 and shape[0] == first[0].size and shape[0] != shape[1]:
            tail = ["B", "S"]
        if len(shape) == 3:
            tail = ["B", "T", "S"]
        if dtype.startswith("torch.int") and shape == tuple(d.size for d in first[: len(shape)]):
            return first[: len(shape)]
        return tuple(
            named(letter, size) if letter and size > 1 else Dim(size)
            for letter, size in zip(tail or [""] * len(shape), shape, strict=True)
        )
    if len(shape) == 3 and len(first) == 3 and shape[0] == first[0].size:
        tokens = first[1] if shape[1] == first[1].size else named("S", shape[1])
        channels = first[2] if shape[2] == first[2].size else Dim(shape[2])
        return (first[0], tokens, channels)
    if shape == tuple(dim.size for dim in first):
        return first
    return tuple(Dim(size) for size in shape)


def _layout(axes: Axes, serial: int) -> str | None:
    """`TBC` where the module proves to read its input [T, B, C]: `tgt_len, bsz, dim = x.size()`."""
    if len(axes.recording.made[serial][0]) != 3:
        return None
    letters: dict[int, str | None] = {}
    for code, lasti, _, frozen in axes.recording.sizes:
        if not frozen or frozen[0] != serial:
            continue
        place = node_at(code, lasti)
        parent = place[0].parents.get(place[1]) if place is not None else None
        if not isinstance(parent, ast.Assign):
            continue
        target = parent.targets[0]
        if len(frozen) > 1 and isinstance(frozen[1], int) and isinstance(target, ast.Name):
            letters.setdefault(frozen[1] % 3, letter_of(target.id))
        elif isinstance(target, ast.Tuple) and len(target.elts) == 3:
            for axis, item in enumerate(target.elts):
                letters.setdefault(axis, letter_of(item.id) if isinstance(item, ast.Name) else None)
    if letters.get(0) == "T" and letters.get(1) == "B":
        return "TBC"
    for event in axes.recording.events:
        if event.op.name == "multi_head_attention_forward" and event.args and event.args[0] == serial:
            return "TBC"  # the layout that this function documents
    return None


def _carry(axes: Axes, event: Event, shape: Sequence[int]) -> Dims:
    """Names for an operation without a rule of its own."""
    inputs = [axes.dims(ref) for ref in refs_of(event)]
    for dims in inputs:
        if tuple(dim.size for dim in dims) == tuple(shape):
            return dims
    for dims in inputs:
        if len(dims) == len(shape):
            return tuple(
                dim if dim.size == size else Dim(size) for dim, size in zip(dims, shape, strict=True)
            )
    return tuple(Dim(size) for size in shape)


def _square(axes: Axes, dims: Dims) -> Dims:
    """A matrix of tokens by tokens is queries by keys."""
    if len(dims) >= 2 and dims[-1].root() is dims[-2].root() and dims[-1].label == "T":
        return (*dims[:-1], axes.space.named("S", dims[-1].size))
    return dims
