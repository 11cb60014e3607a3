"""Saying a report on standard error: the last steps, the findings, notes. Nothing here needs torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from attnscope.diagnostic import Report

if TYPE_CHECKING:
    from attnscope.render.show import ColorChoice, Lines, Style


@dataclass(frozen=True)
class Console:
    """How things are said: `width` None for the terminal's own, `stream` None for `sys.stderr`."""

    width: int | None = None
    color: ColorChoice = "auto"
    stream: IO[str] | None = None

    def say(self, draw: Callable[[Style], Lines]) -> None:
        """Print what `draw(style)` makes; a closed stream swallows it."""
        from attnscope.render import show

        stream = self.stream or sys.stderr or sys.__stderr__
        if stream is not None:
            show.say(draw, stream, self.width, self.color)

    def report(self, report: Report) -> None:
        from attnscope.render.show import run_lines

        self.say(lambda style: run_lines(style, report))

    def line(self, text: str) -> None:
        """One line of attnscope's own."""
        from attnscope.render.show import message_lines

        self.say(lambda style: message_lines(style, text, first="attnscope: "))
