"""What `check` and `run` say: the findings, then what was tried and what it showed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.text import Text

from attnscope.diagnostic import NOTHING_FOUND, Report, Tried
from attnscope.files import short_path
from attnscope.folding import last_rows
from attnscope.render.findings import draw_findings, summary_line
from attnscope.render.header import draw_header
from attnscope.render.layout import (
    INDENT,
    MARK,
    Column,
    blank,
    count,
    heading,
    indented,
    notes,
    paragraph,
    spaced,
    table,
)
from attnscope.render.shapes import draw_shapes
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Step

MOST_ROWS = 30


def draw_report(style: Style, report: Report) -> Lines:
    """Header, findings, the table of what was tried, notes, and one closing line."""
    return spaced(
        [
            draw_header(style, report.model) if report.model is not None else [],
            draw_findings(style, report.findings, summary=False),
            _tried(style, report) if report.tried else [],
            notes(style, report.notes),
            [_verdict(style, report)],
        ]
    )


def _verdict(style: Style, report: Report) -> Text:
    if report.findings:
        return summary_line(style, report.findings)
    said = "no fault found" if report.complete else "no fault found in what could be tried"
    line = Text().append(said, style("help"))
    target = style.text(short_path(report.target))
    if report.complete and target and line.cell_len + 4 + cell_len(target) <= style.width:
        line.append(f" in {target}")
    return line


def draw_run(style: Style, report: Report) -> Lines:
    """The trace up to the fault, folded, and of a long one its last rows; the findings; notes."""
    parts: list[Lines] = []
    if report.trace is not None:
        parts.append(draw_header(style, report.trace.model))
        if report.trace.steps or not report.findings:
            parts.append(_last_steps(style, report.trace.steps))
    parts += [draw_findings(style, report.findings, summary=False), notes(style, report.notes)]
    return [*spaced(parts), blank()] if any(parts) else []


def _last_steps(style: Style, steps: Sequence[Step]) -> Lines:
    shown = last_rows(steps, MOST_ROWS)
    lines = draw_shapes(style, shown)
    left_out = len(steps) - len(shown)
    if left_out:
        said = f"{count(left_out, 'earlier step')} not shown"
        lines[1:1] = [blank(), *paragraph(style, said, first=INDENT, look="dim")]
    return lines


def _tried(style: Style, report: Report) -> Lines:
    """What was tried, the whole target first, then each attention that was judged by itself."""
    done = [one for one in report.tried if one.status == "done"]
    facts = f"{sum(one.held for one in done)} of {len(done)} held"
    missed = len([one for one in report.tried if one.status == "not tried"])
    facts += f", {missed} could not be tried" if missed else ""
    lines = [heading(style, "tried", facts), blank()]
    modules = list(dict.fromkeys(one.module for one in report.tried))
    for module in modules:
        rows = _rows([one for one in report.tried if one.module == module], len(modules) > 3)
        if module:
            lines += [blank(), *paragraph(style, f"in `{module}`", first=INDENT)]
        lines += _table(style, rows)
    return lines


Row = tuple[Literal["held", "failed", "none", "missed"], str, str]


def _rows(tried: Sequence[Tried], short: bool) -> list[Row]:
    """Mark, name and result of each row; what found nothing, and what does not apply, in one row each."""
    folded = bool(short and tried and tried[0].module)  # of many attentions: what held, in one row
    held = [one for one in tried if _mark(one) == "held" and one.status == "done"]
    apart = held if folded else [one for one in held if one.result == NOTHING_FOUND]
    order = [one for one in tried if one.status != "not applicable" and one not in apart]
    rows: list[Row] = [(_mark(one), one.name, one.result) for one in order]
    if apart:
        title = f"{len(apart)} held" if folded else NOTHING_FOUND
        rows.append(("held", title, ", ".join(one.name for one in apart)))
    reasons: dict[str, list[str]] = {}
    for one in tried:
        if one.status == "not applicable":
            reasons.setdefault(one.result, []).append(one.name)
    if reasons:
        said = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        rows.append(("none", "not applicable", said))
    return rows


def _mark(one: Tried) -> Literal["held", "failed", "missed"]:
    return "missed" if one.status == "not tried" else "held" if one.held else "failed"


def _table(style: Style, rows: Sequence[Row]) -> Lines:
    marks = {
        "held": (style.glyph("✓", "+"), "good"),
        "failed": (style.glyph("✗", "!"), "bad"),
        "none": (style.glyph("·", "-"), "dim"),
        "missed": ("?", "bad"),
    }
    cells = []
    for kind, name, result in rows:
        mark, look = marks[kind]
        said = Text(style.text(result), style("dim") if kind in ("held", "none") else "")
        cells.append([Text(mark, style(look)), Text(style.text(name)), said])
    return indented(table(style, (MARK, Column(), Column()), cells))
