"""An einsum's equation, read once: the letters of each operand and of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DOTS = "."
"""Stands for the axes that `...` spreads over."""


@dataclass(frozen=True)
class Equation:
    """`inputs` and `output` hold a letter for each axis; a whole `...` is one `.`."""

    inputs: tuple[str, ...]
    output: str

    @property
    def summed(self) -> set[str]:
        """The letters that two operands share and the result has not: what is summed over."""
        shared = set.intersection(*map(set, self.inputs)) if len(self.inputs) > 1 else set()
        return shared - set(self.output) - {DOTS}


def read(equation: Any) -> Equation | None:
    """The letters of an equation; None for what is none. Without `->` the result has the single letters."""
    if not isinstance(equation, str):
        return None
    text = equation.replace(" ", "").replace("...", DOTS)
    left, arrow, right = text.partition("->")
    if not arrow:
        right = (DOTS if DOTS in left else "") + "".join(
            sorted(x for x in set(left) if x.isalpha() and left.count(x) == 1)
        )
    return Equation(tuple(left.split(",")), right)


def spread(letters: str, rank: int) -> list[str]:
    """One letter for each of `rank` axes; those that `...` stands for are `.`.

    Raises ValueError where they are not as many.
    """
    head, dots, tail = letters.partition(DOTS)
    extra = rank - len(head) - len(tail)
    if extra < 0 or (extra and not dots):
        raise ValueError(f"{rank} axes for {letters}")
    return [*head, *[DOTS] * extra, *tail]
