"""A tensor whose numbers are the places of its elements in the input: sizes, strides and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 1_000_000
"""Elements that a tensor here may have: what is shown is a handful of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Strided:
    """`memory` [N] holds element numbers as they lie there; sizes and strides say how it is read.

    Two tensors share memory exactly when their `memory` is one array.
    """

    memory: NDArray[np.int64]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The element numbers in logical order, an array of `shape`."""
        strides = [stride * self.memory.itemsize for stride in self.strides]
        read: Any = np.lib.stride_tricks.as_strided
        found: NDArray[np.int64] = read(self.memory[self.offset :], self.shape, strides, writeable=False)
        return found

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in memory in logical order; the strides of axes of size 1 are free."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def read_as(self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> Strided:
        """The same memory read in another way."""
        return Strided(self.memory, tuple(shape), tuple(strides), self.offset if offset is None else offset)

    def copied(self) -> Strided:
        """The elements written anew, in their logical order."""
        return fresh(np.ascontiguousarray(self.numbers))


def counted(shape: Sequence[int]) -> Strided:
    """A new tensor of that shape whose elements are numbered in memory order."""
    return fresh(np.arange(prod(shape), dtype=np.int64).reshape(tuple(shape)))


def fresh(numbers: NDArray[np.int64]) -> Strided:
    """Numbers written into memory of their own, in logical order."""
    return Strided(np.ascontiguousarray(numbers).reshape(-1), numbers.shape, row_major(numbers.shape))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def view_strides(old: Strided, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Strides by which `old`'s memory reads as `shape` without moving an element; None where none do.

    Axes of `old` that lie in memory as one (each stride is the next stride times its size) form a block; the
    new axes must cut each block by itself. `shape` has as many elements as `old`.
    """
    strides = [0] * len(shape)
    axis = len(shape) - 1
    elements, base = 1, old.strides[-1] if old.strides else 1
    for place in range(len(old.shape) - 1, -1, -1):
        elements *= old.shape[place]
        before = old.shape[place - 1], old.strides[place - 1]
        if place and (before[0] == 1 or before[1] == elements * base):
            continue  # the axis before lies in the same block
        covered = 1
        while axis >= 0 and (covered < elements or shape[axis] == 1):
            strides[axis] = base * covered
            covered *= shape[axis]
            axis -= 1
        if covered != elements:
            return None
        elements, base = 1, before[1]
    for index in range(axis, -1, -1):  # axes of size 1 of a tensor without axes
        strides[index] = 1
    return tuple(strides)
