"""The one exception that reaches the command line's outer boundary.

Inner code raises `UsageError` tersely, with what was wrong and what would work; the boundary
(`attnscope.cli`) prints it as one line on standard error and exits with 2.
"""

from __future__ import annotations


class UsageError(Exception):
    """The command line or one of its inputs is wrong.

    `message` says what was wrong, `hint` what would work; together they make one line.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message
