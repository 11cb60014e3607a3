"""Sizes that fit each other (C divisible by H, T within the context) and differ from each other.

No two axes of a made call have one size, so that a shape tells which axis is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

BATCH = 2
LENGTH = 7
SECOND_LENGTH = 5

# Head dimension and head count by which a constructor that refuses one choice is tried again.
VARIANTS: tuple[tuple[int, int], ...] = ((8, 3), (8, 4), (16, 4), (32, 4), (64, 2), (64, 8), (128, 2))


@dataclass(frozen=True, slots=True)
class Sizes:
    """B batch, T tokens, C width, H heads, G key/value heads, D head dimension, S second sequence."""

    B: int = BATCH
    T: int = LENGTH
    C: int = 24
    H: int = 3
    G: int = 3
    D: int = 8
    S: int = SECOND_LENGTH
    context: int = 16
    vocab: int = 61
    layers: int = 2
    ffn: int = 96

    def all(self) -> tuple[int, ...]:
        """Every size that an axis may have."""
        return self.B, self.T, self.C, self.H, self.G, self.D, self.S, self.context, self.vocab, self.ffn

    def value(self, role: str | None) -> int | None:
        """The size that a role stands for."""
        table = {
            "C": self.C,
            "H": self.H,
            "G": self.G,
            "D": self.D,
            "T": self.context,
            "vocab": self.vocab,
            "layers": self.layers,
            "ffn": self.ffn,
            "groups": self.H // max(self.G, 1),
        }
        return table.get(role or "")


def solve(
    fixed: Mapping[str, int],
    wanted: Iterable[str] = (),
    *,
    batch: int = BATCH,
    length: int = LENGTH,
    vocab: int | None = None,
    variant: int = 0,
) -> Sizes:
    """Sizes that keep those of `fixed` (by role) and give key/value heads of their own where `wanted` has G.

    `variant` picks another head dimension and count where the constructor refused the first.
    """
    dim, heads = VARIANTS[variant % len(VARIANTS)]
    grouped = "G" in fixed or "G" in wanted
    c, h, d, g = fixed.get("C"), fixed.get("H"), fixed.get("D"), fixed.get("G")
    if h is None:
        h = _heads(c, d, g, heads * 2 if grouped and variant == 0 else heads, {batch, length})
    if g is None:
        g = _groups(h, batch) if grouped else h
    if d is None:
        d = c // h if c is not None and h and c % h == 0 else _head_dim(dim, {h, batch, length, g})
    if c is None:
        c = h * d
    context = fixed.get("T") or _context(length, {c, h, d, g})
    taken = {batch, length, c, h, g, d, context}
    second = next(n for n in (SECOND_LENGTH, 4, 9, 11, 10, 13, 3) if n not in taken)
    words = fixed.get("vocab") or max(vocab or 0, 61 if 61 not in taken else 67)
    return replace(
        Sizes(),
        B=batch,
        T=length,
        C=c,
        H=h,
        G=g,
        D=d,
        S=second,
        context=context,
        vocab=words,
        layers=fixed.get("layers") or 2,
        ffn=fixed.get("ffn") or 4 * c,
    )


def _heads(c: int | None, d: int | None, g: int | None, usual: int, taken: set[int]) -> int:
    if c is not None and d is not None and d > 0 and c % d == 0:
        return c // d
    steps: tuple[int, ...] = (usual, 3, 4, 6, 5, 8, 2, 9, 7, 1)
    if g is not None:
        steps = tuple(g * n for n in (2, 3, 4, 1) if g * n not in taken) or (g * 2,)
    if c is None:
        return steps[0]
    fits = [n for n in steps if n and c % n == 0]
    good = [n for n in fits if (c // n) % 2 == 0 and n not in taken and c // n != n]
    return (good or fits or [1])[0]


def _groups(h: int, batch: int) -> int:
    divisors = [n for n in range(h - 1, 0, -1) if h % n == 0]
    return next((n for n in divisors if n not in (batch, 1)), next((n for n in divisors if n != 1), 1))


def _head_dim(usual: int, taken: set[int]) -> int:
    return next((n for n in (usual, 8, 4, 16, 12, 10, 32) if n not in taken), usual)


def _context(length: int, taken: set[int]) -> int:
    return next(
        n
        for n in (16, 20, 28, 40, 64, 128, 256, 512, 1024, 2048, 4096, length + 1)
        if n > length and n not in taken
    )


def as_size(value: Any) -> int | None:
    """`value` where it is a positive whole number (and no bool)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
