"""What `check` and `run` say: the findings, then what was tried and what it showed."""

from __future__ import annotations

from rich.text import Text

from attnscope.diagnostic import Report
from attnscope.render.files import short_path
from attnscope.render.findings import draw_findings, summary_line
from attnscope.render.header import draw_header
from attnscope.render.layout import INDENT, blank, heading, paragraph, wrap
from attnscope.render.terminal import Lines, Style, cell_len


def draw_report(style: Style, report: Report) -> Lines:
    """Header, findings, the table of what was tried, notes, and one closing line."""
    lines: Lines = []
    if report.model is not None:
        lines += [*draw_header(style, report.model), blank()]
    if report.findings:
        lines += [*draw_findings(style, report.findings, summary=False), blank()]
    if report.tried:
        lines += [*_tried(style, report), blank()]
    for note in report.notes:
        lines += paragraph(style, f"note: {note}", look="dim")
    if report.notes:
        lines.append(blank())
    if report.findings:
        lines.append(summary_line(style, report.findings))
    else:
        line = Text().append("no fault found", style("help"))
        target = style.text(short_path(report.target))
        if target and line.cell_len + 4 + cell_len(target) <= style.width:
            line.append(f" in {target}")
        lines.append(line)
    return lines


def _tried(style: Style, report: Report) -> Lines:
    held = sum(tried.held for tried in report.tried)
    lines = [heading(style, "tried", f"{held} of {len(report.tried)} held"), blank()]
    names = [style.text(tried.name) for tried in report.tried]
    width = min(max(map(cell_len, names)), max(8, style.width // 3))
    marks = style.glyph("✓", "+"), style.glyph("✗", "!")
    for tried in report.tried:
        room = style.width - len(INDENT) - 2 - width - 2
        name_parts = wrap(style.text(tried.name), width)
        parts = wrap(style.text(tried.result), max(8, room))
        for number in range(max(len(parts), len(name_parts))):
            line = Text(INDENT)
            mark = (marks[0] if tried.held else marks[1]) if number == 0 else " "
            line.append(mark, style("good" if tried.held else "bad"))
            name = name_parts[number] if number < len(name_parts) else ""
            line.append(" " + name + " " * (width - cell_len(name)) + "  ")
            line.append(parts[number] if number < len(parts) else "", "" if not tried.held else style("dim"))
            line.rstrip()
            lines.append(line)
    return lines
