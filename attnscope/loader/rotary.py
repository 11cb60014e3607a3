"""Rotary tables in each form that modules take: (cos, sin), either alone, complex numbers, bare angles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from attnscope.loader.candidates import Candidate, Frame


def angles(frame: Frame, dim: int) -> Tensor:
    """[T, dim / 2]: position times inverse frequency, base 10000."""
    half = max(dim // 2, 1)
    steps = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    return torch.arange(frame.T, dtype=torch.float32)[:, None] * steps


_SHAPES: dict[str, Callable[[Tensor, Frame], Tensor]] = {
    "[1, T, D]": lambda a, f: a[None],
    "[T, D]": lambda a, f: a,
    "[B, T, D]": lambda a, f: a.expand(f.B, -1, -1),
    "[1, 1, T, D]": lambda a, f: a[None, None],
    "[1, T, 1, D]": lambda a, f: a[None, :, None],
    "[T, 1, D]": lambda a, f: a[:, None],
    "[T, 1, 1, D]": lambda a, f: a[:, None, None],
}


def _tables(frame: Frame) -> Iterator[tuple[str, int, bool, Callable[[Tensor, Frame], Tensor]]]:
    for dim in dict.fromkeys((*frame.head_dims, frame.D)):
        for half in (False, True):
            for label, shaped in _SHAPES.items():
                yield label.replace("D]", f"{dim // 2 if half else dim}]"), dim, half, shaped


def _table(frame: Frame, dim: int, half: bool) -> Tensor:
    a = angles(frame, dim)
    return a if half else torch.cat((a, a), -1)


def rope_pairs(frame: Frame) -> Iterator[Candidate]:
    """(cos, sin), then one tensor that holds both, then complex numbers."""
    for label, dim, half, shaped in _tables(frame):

        def make(f: Frame, dim: int = dim, half: bool = half, shaped: Any = shaped) -> Any:
            a = shaped(_table(f, dim, half), f)
            return a.cos().to(f.dtype), a.sin().to(f.dtype)

        yield Candidate(f"(cos, sin) {label}", make)
    yield from rope_complex(frame)
    yield from rope_angles(frame)


def rope_part(frame: Frame, part: str) -> Iterator[Candidate]:
    """cos or sin alone."""
    for label, dim, half, shaped in _tables(frame):

        def make(f: Frame, dim: int = dim, half: bool = half, shaped: Any = shaped) -> Any:
            a = shaped(_table(f, dim, half), f)
            return (a.cos() if part == "cos" else a.sin()).to(f.dtype)

        yield Candidate(f"{part} {label}", make)


def rope_complex(frame: Frame) -> Iterator[Candidate]:
    """exp(i · position · frequency) [T, D/2], complex; then as pairs of numbers."""
    for dim in dict.fromkeys((*frame.head_dims, frame.D)):

        def pairs(f: Frame, dim: int = dim) -> Any:
            a = angles(f, dim)
            return torch.stack((a.cos(), a.sin()), -1).to(f.dtype)

        for label in ("[T, D]", *(shape for shape in _SHAPES if shape != "[T, D]")):
            shaped = _SHAPES[label]

            def make(f: Frame, dim: int = dim, shaped: Any = shaped) -> Any:
                a = angles(f, dim)
                return shaped(torch.polar(torch.ones_like(a), a), f)

            yield Candidate(f"complex {label.replace('D]', f'{dim // 2}]')}", make)
            if label == "[T, D]":
                yield Candidate(f"(cos, sin) [T, {dim // 2}, 2]", pairs)


def rope_angles(frame: Frame) -> Iterator[Candidate]:
    """Bare angles, real."""
    for label, dim, half, shaped in _tables(frame):

        def make(f: Frame, dim: int = dim, half: bool = half, shaped: Any = shaped) -> Any:
            return shaped(_table(f, dim, half), f).to(f.dtype)

        yield Candidate(f"angles {label}", make)
