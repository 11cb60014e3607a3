"""How much may be tried, in operations: one input has one answer, however slow the machine."""

from __future__ import annotations

# About what one core does in ten seconds; a step costs some microseconds whatever its size.
MOST = 1.2e11
_STEP = 100_000
_COPY = 8


class Budget:
    """Operations that are left for the experiments of one check, on however many subjects."""

    def __init__(self, most: float = MOST) -> None:
        self.left = most

    @property
    def spent(self) -> bool:
        """Nothing is left."""
        return self.left <= 0

    def spend(self, runs: float, size: int, tokens: int, steps: int) -> None:
        """`runs` runs of a module of `size` numbers on `tokens` tokens, in so many steps."""
        self.left -= runs * (size * (tokens + _COPY) + steps * _STEP)
