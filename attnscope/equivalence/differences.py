"""How far apart two tensors are, where, and how far they may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

TOLERANCE = {
    torch.float64: 1e-6,
    torch.float32: 1e-5,
    torch.bfloat16: 6e-2,
    torch.float16: 1e-2,
}
"""Allowed differences, relative to the largest number (or to 1, if that is more)."""


@dataclass(frozen=True)
class Gap:
    """The largest difference of two tensors, `inf` where one has a number and the other none.

    `shapes` is set where they cannot be compared at all; `places` are the indices that differ, in all axes.
    """

    largest: float
    tolerance: float
    where: Mapping[str, int] = field(default_factory=dict)
    shapes: str = ""
    nan: str = ""

    @property
    def equal(self) -> bool:
        return not self.shapes and self.largest <= self.tolerance


def gap(a: Tensor, b: Tensor, tolerance: float) -> Gap:
    """Compare two tensors of one shape. Equal infinities and NaN in the same places are equal."""
    if a.shape != b.shape:
        return Gap(float("inf"), tolerance, shapes=f"A gives {list(a.shape)}, B gives {list(b.shape)}")
    if a.numel() == 0:
        return Gap(0.0, tolerance)
    x, y = _real(a.detach()), _real(b.detach())
    same = (x == y) | (x.isnan() & y.isnan())
    difference = torch.where(same, torch.zeros_like(x), (x - y).abs())
    difference = torch.where(difference.isfinite(), difference, torch.full_like(x, float("inf")))
    finite = torch.cat([x[x.isfinite()].abs().reshape(-1), y[y.isfinite()].abs().reshape(-1)])
    scale = max(1.0, float(finite.max()) if finite.numel() else 1.0)
    largest = float(difference.max())
    index = [int(i) for i in torch.unravel_index(difference.argmax(), difference.shape)]
    names = _axis_names(x.dim())
    nan = ""
    if largest == float("inf"):
        nan = "A" if not bool(x[tuple(index)].isfinite()) else "B"
    where = dict(zip(names, index, strict=True)) if largest > tolerance * scale else {}
    return Gap(largest, tolerance * scale, where, nan=nan)


def _real(value: Tensor) -> Tensor:
    """In float64; a complex number as its two parts."""
    return torch.view_as_real(value.to(torch.complex128)) if value.is_complex() else value.double()


def _axis_names(dims: int) -> tuple[str, ...]:
    if dims == 3:
        return ("batch", "position", "channel")
    if dims == 2:
        return ("batch", "position")
    if dims == 4:
        return ("batch", "head", "position", "key")
    return tuple(f"axis {i}" for i in range(dims))


def place(where: Mapping[str, int]) -> str:
    """`batch 0, position 4, channel 12`."""
    return ", ".join(f"{name} {index}" for name, index in where.items())
