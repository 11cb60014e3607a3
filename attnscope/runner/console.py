"""Saying a report on standard error: the last steps, the findings, notes. Nothing here needs torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from attnscope.diagnostic import Report
from attnscope.schema import Attention, Step

if TYPE_CHECKING:
    from attnscope.render.terminal import ColorChoice, Lines, Style

MOST_ROWS = 30


@dataclass(frozen=True)
class Console:
    """How things are said: `width` None for the terminal's own, `stream` None for `sys.stderr`."""

    width: int | None = None
    color: ColorChoice = "auto"
    stream: IO[str] | None = None

    def say(self, draw: object) -> None:
        """Print what `draw(style)` makes; a closed stream swallows it."""
        from attnscope.render.terminal import emit, make_console

        stream = self.stream or sys.stderr or sys.__stderr__
        if stream is None:
            return
        console, style = make_console(self.width, self.color, stream)
        lines = draw(style)  # type: ignore[operator]
        with console.capture() as captured:
            emit(console, lines)
        text = captured.get()
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except (OSError, ValueError):
            return
        stream.flush()

    def report(self, report: Report) -> None:
        self.say(lambda style: report_lines(style, report))

    def line(self, text: str) -> None:
        """One line of attnscope's own."""
        from attnscope.render.layout import paragraph

        self.say(lambda style: paragraph(style, text, first="attnscope: "))


def report_lines(style: Style, report: Report, rows: int | None = MOST_ROWS) -> Lines:
    """The trace up to the fault, folded, and of a long one its last rows; the findings; notes."""
    from attnscope.render.findings import draw_findings
    from attnscope.render.header import draw_header
    from attnscope.render.layout import INDENT, blank, paragraph
    from attnscope.render.shapes import draw_shapes

    lines: Lines = []
    if report.trace is not None:
        lines += [*draw_header(style, report.trace.model), blank()]
        steps = report.trace.steps
        if steps or not report.findings:
            shown = last_rows(steps, rows)
            drawn = draw_shapes(style, shown)
            left_out = len(steps) - len(shown)
            if left_out:
                said = f"{left_out} earlier step{'s' if left_out > 1 else ''} not shown"
                drawn[1:1] = [blank(), *paragraph(style, said, first=INDENT, look="dim")]
            lines += [*drawn, blank()]
    if report.findings:
        lines += [*draw_findings(style, report.findings, summary=False), blank()]
    for note in report.notes:
        lines += paragraph(style, note, first="note: ", look="dim")
    if report.notes:
        lines.append(blank())
    return lines


def last_rows(steps: Sequence[Step], rows: int | None) -> Sequence[Step]:
    """The longest tail of the steps that, with equal layers folded, has at most so many rows."""
    from attnscope.render.folding import fold_layers

    if rows is None or len(fold_layers(steps)) <= rows:
        return steps
    low, high = 0, len(steps) - rows
    while low < high:  # folding makes this nearly monotonous; a row too many or too few does no harm
        middle = (low + high) // 2
        if len(fold_layers(steps[middle:])) <= rows:
            high = middle
        else:
            low = middle + 1
    return steps[high:]


def heads_lines(style: Style, attention: Sequence[Attention], name: str) -> Lines:
    """The weights of every head of one forward."""
    from attnscope.render.layout import blank, paragraph
    from attnscope.render.weights import draw_weights

    return [*paragraph(style, name, look="title"), blank(), *draw_weights(style, attention), blank()]
