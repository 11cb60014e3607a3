"""The one exception that reaches the command line's outer boundary.

Inner code raises `UsageError` tersely, with what was wrong and what would work; the boundary
(`attnscope.cli`) prints it as one line on standard error and exits with 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnscope.schema import Step


class UsageError(Exception):
    """The command line or one of its inputs is wrong.

    `message` says what was wrong, `hint` what would work; together they make one line. `steps` are the
    tensor steps up to a crash that hangs on a guess; they are shown above it.
    """

    def __init__(self, message: str, hint: str = "", steps: Sequence[Step] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.steps = tuple(steps)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message
