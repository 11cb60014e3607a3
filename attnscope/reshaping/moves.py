"""What each method of a chain does to sizes, strides and memory; the arguments are those of torch.

A move takes a tensor and the arguments as written, and returns a tensor, or a tuple of them. What torch would
refuse raises `Impossible` with the reason; what would work is worked out by `cures.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from attnscope.reshaping.strided import MOST, Strided, fresh, row_major, view_strides

Result = Strided | tuple[Strided, ...]
Move = Callable[..., Result]


class Impossible(Exception):
    """What torch would refuse: the reason, in words that name the sizes."""


class NotKnown(Exception):
    """What this calculator does not know, whatever torch makes of it."""


# -- arguments -----------------------------------------------------------------------------------------------


def whole(value: Any, what: str = "a size") -> int:
    if isinstance(value, bool):
        raise Impossible(f"{what} must be a whole number, not {value}")
    try:
        return operator.index(value)
    except TypeError:
        raise Impossible(f"{what} must be a whole number, not {value!r}") from None


def axis_of(x: Strided, value: Any, more: int = 0) -> int:
    """An axis counted from the front; `more` axes may come to those that there are."""
    axis, axes = whole(value, "an axis"), len(x.shape) + more
    if not -max(axes, 1) <= axis < max(axes, 1):
        raise Impossible(
            f"there is no axis {axis}: {listed(x.shape)} has axes {-axes} to {axes - 1}"
            if axes
            else f"there is no axis {axis}: this is a single number"
        )
    return axis % axes if axes else 0


def numbers_of(args: Sequence[Any], what: str = "a size") -> list[int]:
    """`view(2, 3)` and `view((2, 3))` alike."""
    given = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    return [whole(value, what) for value in given]


def listed(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def times(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) if shape else "1"


def filled(sizes: Sequence[int], elements: int, of: str) -> tuple[int, ...]:
    """Sizes with their one -1 worked out so that all elements are taken."""
    unknown = [index for index, size in enumerate(sizes) if size == -1]
    if len(unknown) > 1:
        raise Impossible("only one size can be -1")
    wrong = next((size for size in sizes if size < -1), None)
    if wrong is not None:
        raise Impossible(f"{wrong} is no size")
    known = prod(size for size in sizes if size != -1)
    if unknown:
        if known == 0 or elements % known:
            raise Impossible(
                f"{of} has {elements} elements, which {known} does not divide: -1 cannot be worked out"
            )
        return tuple(elements // known if size == -1 else size for size in sizes)
    if known != elements:
        raise Impossible(f"{of} has {elements} elements, {times(sizes)} are {known}")
    return tuple(sizes)


# -- views ---------------------------------------------------------------------------------------------------


def view(x: Strided, *sizes: Any) -> Strided:
    shape = filled(numbers_of(sizes), x.size, listed(x.shape))
    strides = view_strides(x, shape)
    if strides is None:
        raise Impossible(
            f"{listed(x.shape)} with strides {tuple(x.strides)} cannot be read as {listed(shape)} "
            "without moving elements"
        )
    return x.read_as(shape, strides)


def reshape(x: Strided, *sizes: Any, shape: Any = None) -> Strided:
    wanted = filled(numbers_of((shape,) if shape is not None else sizes), x.size, listed(x.shape))
    strides = view_strides(x, wanted)
    if strides is not None:
        return x.read_as(wanted, strides)
    made = x.copied()
    return made.read_as(wanted, row_major(wanted))


def flatten(x: Strided, start_dim: Any = 0, end_dim: Any = -1) -> Strided:
    if not x.shape:
        return x.read_as((1,), (1,))
    start, end = axis_of(x, start_dim), axis_of(x, end_dim)
    if start > end:
        raise Impossible(f"flatten goes from axis {start} to axis {end}: the first must come before the last")
    if start == end:
        return x
    return reshape(x, *x.shape[:start], prod(x.shape[start : end + 1]), *x.shape[end + 1 :])


def unflatten(x: Strided, dim: Any, sizes: Any) -> Strided:
    axis = axis_of(x, dim)
    cut = filled(numbers_of((sizes,)), x.shape[axis], f"axis {axis}")
    if not cut:
        raise Impossible("unflatten needs sizes")
    return view(x, *x.shape[:axis], *cut, *x.shape[axis + 1 :])


def permute(x: Strided, *dims: Any) -> Strided:
    given = numbers_of(dims, "an axis")
    if len(given) != len(x.shape):
        raise Impossible(f"permute names {len(given)} axes, {listed(x.shape)} has {len(x.shape)}")
    order = [axis_of(x, axis) for axis in given]
    if len(set(order)) != len(order):
        raise Impossible(f"permute names axis {next(axis for axis in order if order.count(axis) > 1)} twice")
    return x.read_as([x.shape[axis] for axis in order], [x.strides[axis] for axis in order])


def transpose(x: Strided, dim0: Any, dim1: Any) -> Strided:
    one, two = axis_of(x, dim0), axis_of(x, dim1)
    order = list(range(len(x.shape)))
    if order:
        order[one], order[two] = order[two], order[one]
    return permute(x, *order)


def movedim(x: Strided, source: Any, destination: Any) -> Strided:
    start = [
        axis_of(x, axis) for axis in numbers_of((source,) if isinstance(source, tuple | list) else [source])
    ]
    end = [
        axis_of(x, axis)
        for axis in numbers_of((destination,) if isinstance(destination, tuple | list) else [destination])
    ]
    if len(start) != len(end):
        raise Impossible(f"movedim moves {len(start)} axes to {len(end)} places")
    if len(set(start)) != len(start) or len(set(end)) != len(end):
        raise Impossible("movedim names an axis twice")
    if not x.shape:
        return x
    order = [axis for axis in range(len(x.shape)) if axis not in start]
    for place, axis in sorted(zip(end, start, strict=True)):
        order.insert(place, axis)
    return permute(x, *order)


def t(x: Strided) -> Strided:
    if len(x.shape) > 2:
        raise Impossible(f"t() is for matrices, {listed(x.shape)} has {len(x.shape)} axes")
    return x if len(x.shape) < 2 else transpose(x, 0, 1)


def reversed_axes(x: Strided) -> Strided:
    return x.read_as(x.shape[::-1], x.strides[::-1])


def matrix_transposed(x: Strided) -> Strided:
    if len(x.shape) == 1:
        raise Impossible(f".mT needs two axes, {listed(x.shape)} has 1")
    if not x.shape:
        return x
    return transpose(x, -2, -1)


def unsqueeze(x: Strided, dim: Any) -> Strided:
    axis = axis_of(x, dim, more=1)
    stride = x.shape[axis] * x.strides[axis] if axis < len(x.shape) else 1
    return x.read_as((*x.shape[:axis], 1, *x.shape[axis:]), (*x.strides[:axis], stride, *x.strides[axis:]))


def squeeze(x: Strided, *dims: Any) -> Strided:
    named = {axis_of(x, axis) for axis in numbers_of(dims, "an axis")} if dims else set(range(len(x.shape)))
    kept = [axis for axis in range(len(x.shape)) if not (axis in named and x.shape[axis] == 1)]
    return x.read_as([x.shape[axis] for axis in kept], [x.strides[axis] for axis in kept])


def expand(x: Strided, *sizes: Any) -> Strided:
    wanted = numbers_of(sizes)
    new = len(wanted) - len(x.shape)
    if new < 0:
        raise Impossible(f"expand names {len(wanted)} sizes, {listed(x.shape)} has {len(x.shape)} axes")
    shape, strides = list(wanted), [0] * len(wanted)
    for place in range(len(wanted) - 1, -1, -1):
        size = wanted[place]
        if place < new:
            if size < 0:
                raise Impossible(f"{size} is no size for an axis that is new")
            strides[place] = 0 if place + 1 >= len(wanted) else shape[place + 1] * strides[place + 1]
            strides[place] = strides[place] if size == 1 else 0
            continue
        old, stride = x.shape[place - new], x.strides[place - new]
        if size in (-1, old):
            shape[place], strides[place] = old, stride
        elif old == 1 and size >= 0:
            strides[place] = 0
        else:
            raise Impossible(f"axis {place} has size {old}: only an axis of size 1 can be expanded to {size}")
    return x.read_as(_bounded(shape), strides)


def narrow(x: Strided, dim: Any, start: Any, length: Any) -> Strided:
    _has_axes(x, "narrow")
    axis, first, many = axis_of(x, dim), whole(start, "a start"), whole(length, "a length")
    size = x.shape[axis]
    first += size if first < 0 else 0
    if not 0 <= first <= size or many < 0 or first + many > size:
        raise Impossible(f"axis {axis} has size {size}: {many} from {first} on are not there")
    return cut(x, axis, first, first + many)


def select(x: Strided, dim: Any, index: Any) -> Strided:
    _has_axes(x, "select")
    axis, place = axis_of(x, dim), whole(index, "an index")
    size = x.shape[axis]
    if not -size <= place < size:
        raise Impossible(f"axis {axis} has size {size}: there is no index {place}")
    offset = x.offset + (place % size) * x.strides[axis]
    return x.read_as(x.shape[:axis] + x.shape[axis + 1 :], x.strides[:axis] + x.strides[axis + 1 :], offset)


def cut(x: Strided, axis: int, start: int, stop: int, step: int = 1) -> Strided:
    """A slice of one axis; never empty, for nothing could be shown of it."""
    size = len(range(start, stop, step))
    if size < 1:
        raise NotKnown("no element is left")
    shape, strides = list(x.shape), list(x.strides)
    shape[axis], strides[axis] = size, strides[axis] * step
    return x.read_as(shape, strides, x.offset + start * x.strides[axis])


def getitem(x: Strided, index: Any) -> Strided:
    """Basic indexing: whole numbers, slices, None and `...`."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if used > len(x.shape):
        raise Impossible(f"{used} indices for the {len(x.shape)} axes of {listed(x.shape)}")
    if parts.count(Ellipsis) > 1:
        raise NotKnown("`...` can stand once")
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    place = parts.index(Ellipsis)
    parts[place : place + 1] = [slice(None)] * (len(x.shape) - used)
    axis = 0
    for part in parts:
        if part is None:
            x, axis = unsqueeze(x, axis), axis + 1
        elif isinstance(part, slice):
            start, stop, step = part.indices(x.shape[axis])
            if step < 1:
                raise Impossible("the step of a slice must be positive")
            x, axis = cut(x, axis, start, stop, step), axis + 1
        else:
            x = select(x, axis, part)
    return x


# -- several -------------------------------------------------------------------------------------------------


def split(x: Strided, split_size: Any, dim: Any = 0) -> tuple[Strided, ...]:
    _has_axes(x, "split")
    axis = axis_of(x, dim)
    size = x.shape[axis]
    if isinstance(split_size, tuple | list):
        sizes = numbers_of((split_size,))
        if any(one < 0 for one in sizes) or sum(sizes) != size:
            raise Impossible(f"axis {axis} has size {size}, {' + '.join(map(str, sizes))} are {sum(sizes)}")
    else:
        step = whole(split_size)
        if step < 1:
            raise Impossible(f"{step} is no size to split by")
        sizes = [min(step, size - start) for start in range(0, size, step)]
    edges = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
    return tuple(cut(x, axis, start, stop) for start, stop in pairwise(edges))


def chunk(x: Strided, chunks: Any, dim: Any = 0) -> tuple[Strided, ...]:
    _has_axes(x, "chunk")
    axis, number = axis_of(x, dim), whole(chunks, "a number of chunks")
    if number < 1:
        raise Impossible(f"{number} is no number of chunks")
    return split(x, -(-x.shape[axis] // number), axis)


def unbind(x: Strided, dim: Any = 0) -> tuple[Strided, ...]:
    _has_axes(x, "unbind")
    axis = axis_of(x, dim)
    return tuple(select(x, axis, index) for index in range(x.shape[axis]))


def _has_axes(x: Strided, name: str) -> None:
    if not x.shape:
        raise Impossible(f"{name} needs an axis, this is a single number")


# -- copies --------------------------------------------------------------------------------------------------


def contiguous(x: Strided) -> Strided:
    return x if x.contiguous else x.copied()


def clone(x: Strided) -> Strided:
    """As torch does: a copy keeps the order in which the axes lie in memory, without gaps between them."""
    made = fresh(x.numbers.transpose(_outermost_first(x)))
    strides = [0] * len(x.shape)
    for axis, stride in zip(_outermost_first(x), made.strides, strict=True):
        strides[axis] = stride
    kept = x.strides if _fills_its_memory(x) else strides
    return made.read_as(x.shape, kept)


def _fills_its_memory(x: Strided) -> bool:
    """Whether each place between the first and the last element is read exactly once."""
    expected = 1
    for axis in sorted((a for a in range(len(x.shape)) if x.shape[a] > 1), key=lambda a: x.strides[a]):
        if x.strides[axis] != expected:
            return False
        expected *= x.shape[axis]
    return True


def _outermost_first(x: Strided) -> list[int]:
    """Axes from the largest stride to the smallest; a stride of 0 keeps its place."""
    order = list(reversed(range(len(x.shape))))
    for start in range(1, len(order)):
        place = start
        for before in range(start - 1, -1, -1):
            one, two = order[before], order[place]
            if 0 in (x.strides[one], x.strides[two]) or x.strides[one] == x.strides[two]:
                if x.strides[one] == 0 or x.strides[two] == 0 or x.shape[one] <= x.shape[two]:
                    continue
            elif x.strides[one] < x.strides[two]:
                break
            order[before], order[place] = two, one
            place = before
    return order[::-1]


def repeat(x: Strided, *sizes: Any) -> Strided:
    times_ = numbers_of(sizes, "a number of repeats")
    if len(times_) < len(x.shape):
        raise Impossible(f"repeat names {len(times_)} numbers, {listed(x.shape)} has {len(x.shape)} axes")
    if any(number < 0 for number in times_):
        raise Impossible("a number of repeats cannot be negative")
    padded = (*[1] * (len(times_) - len(x.shape)), *x.shape)
    _bounded([a * b for a, b in zip(padded, times_, strict=True)])
    return fresh(np.tile(x.numbers, times_))


def repeat_interleave(x: Strided, repeats: Any, dim: Any = None) -> Strided:
    number = whole(repeats, "a number of repeats")
    if number < 0:
        raise Impossible("a number of repeats cannot be negative")
    if dim is None:
        _bounded([x.size, number])
        return fresh(np.repeat(x.numbers.reshape(-1), number))
    _has_axes(x, "repeat_interleave")
    axis = axis_of(x, dim)
    _bounded([*x.shape, number])
    return fresh(np.repeat(x.numbers, number, axis=axis))


def cat(tensors: Any, dim: Any = 0) -> Strided:
    parts = _several(tensors, "cat")
    if any(not part.shape for part in parts):
        raise Impossible("cat needs an axis, a single number has none")
    axis = axis_of(parts[0], dim)
    for part in parts[1:]:
        if len(part.shape) != len(parts[0].shape) or any(
            a != b
            for place, (a, b) in enumerate(zip(part.shape, parts[0].shape, strict=True))
            if place != axis
        ):
            raise Impossible(
                f"{listed(part.shape)} does not fit behind {listed(parts[0].shape)} along axis {axis}: "
                "all other sizes must be equal"
            )
    return fresh(np.concatenate([part.numbers for part in parts], axis=axis))


def stack(tensors: Any, dim: Any = 0) -> Strided:
    parts = _several(tensors, "stack")
    axis = axis_of(parts[0], dim, more=1)
    other = next((part for part in parts if part.shape != parts[0].shape), None)
    if other is not None:
        raise Impossible(f"stack needs equal shapes: {listed(parts[0].shape)} and {listed(other.shape)}")
    return fresh(np.stack([part.numbers for part in parts], axis=axis))


def _several(tensors: Any, name: str) -> list[Strided]:
    if isinstance(tensors, Strided) or not isinstance(tensors, tuple | list) or not tensors:
        raise Impossible(f"{name} takes a list of tensors")
    if any(not isinstance(part, Strided) for part in tensors):
        raise Impossible(f"{name} takes a list of tensors")
    _bounded([sum(part.size for part in tensors)])
    return list(tensors)


def _bounded(shape: Sequence[int]) -> Sequence[int]:
    if prod(shape) > MOST:
        raise NotKnown(f"{times(shape)} elements are more than the {MOST:,} that this calculator takes")
    if prod(shape) < 1:
        raise NotKnown("no element is left")
    return shape


METHODS: dict[str, Move] = {
    "view": view,
    "reshape": reshape,
    "flatten": flatten,
    "unflatten": unflatten,
    "permute": permute,
    "transpose": transpose,
    "swapaxes": transpose,
    "swapdims": transpose,
    "movedim": movedim,
    "moveaxis": movedim,
    "t": t,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "expand": expand,
    "narrow": narrow,
    "select": select,
    "split": split,
    "chunk": chunk,
    "unbind": unbind,
    "contiguous": contiguous,
    "clone": clone,
    "repeat": repeat,
    "repeat_interleave": repeat_interleave,
}
"""Methods of a tensor; each is also a function of torch."""

PROPERTIES: dict[str, Callable[[Strided], Strided]] = {"T": reversed_axes, "mT": matrix_transposed}

FUNCTIONS: dict[str, Callable[..., Result]] = {"cat": cat, "concat": cat, "concatenate": cat, "stack": stack}
"""Functions of torch that take several tensors."""

SPELLINGS = {
    "axis": "dim",
    "axis0": "dim0",
    "axis1": "dim1",
    "split_size_or_sections": "split_size",
    "size": "sizes",
}
"""Other names that torch gives an argument."""
