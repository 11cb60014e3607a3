"""What `check` says of several targets: the findings of each, then one table of all."""

from __future__ import annotations

from rich.text import Text

from attnscope.diagnostic import Report, Survey, Unchecked
from attnscope.files import short_path
from attnscope.render.findings import draw_findings
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
    table_rows,
)
from attnscope.render.terminal import Lines, Style

SEVERITIES = ("error", "warning", "note")


def draw_survey(style: Style, survey: Survey) -> Lines:
    """The reports that have something to say, but for what was tried; then a table of every target."""
    parts: list[Lines] = []
    for report in survey.reports:
        if report.findings or report.notes:
            parts.append(draw_header(style, report.model) if report.model is not None else [])
            parts.append(draw_findings(style, report.findings, summary=False))
            parts.append(notes(style, report.notes))
    return spaced([*parts, _table(style, survey)])


def _table(style: Style, survey: Survey) -> Lines:
    cells = []
    for one in survey.targets:
        mark, look, said, codes = _row(style, one)
        target = Text(style.text(short_path(one.target)))
        cells.append([Text(mark, style(look)), target, Text(said, style(look)), Text(codes)])
    columns = (MARK, Column("target"), Column("verdict", 11), Column("codes", 5))
    head, *rows = table_rows(style, columns, cells)
    lines: Lines = [heading(style, "checked", _summary(survey)), blank(), *indented(head)]
    for one, row in zip(survey.targets, rows, strict=True):
        lines += indented(row)
        if isinstance(one, Unchecked):
            lines += paragraph(style, one.reason, first=INDENT + "    ", look="dim")
    return lines


def _row(style: Style, one: Report | Unchecked) -> tuple[str, str, str, str]:
    """Mark, look, verdict and codes of one target."""
    if isinstance(one, Unchecked):
        return "?", "care", "not checked", ""
    numbers = [(sum(f.severity == severity for f in one.findings), severity) for severity in SEVERITIES]
    found = [count(number, severity) for number, severity in numbers if number]
    said = ", ".join(found) or "no fault found"
    if not one.complete:
        said += ", incomplete"
    codes = ", ".join(dict.fromkeys(finding.code for finding in one.findings))
    if one.failed:
        return style.glyph("✗", "!"), "bad", said, codes
    return style.glyph("✓", "+"), "care" if found or not one.complete else "good", said, codes


def _summary(survey: Survey) -> str:
    failed = sum(report.failed for report in survey.reports)
    parts = [count(len(survey.targets), "target")]
    parts += [f"{failed} with errors"] if failed else []
    parts += [f"{len(survey.unchecked)} not checked"] if survey.unchecked else []
    return ", ".join(parts) if len(parts) > 1 else f"{parts[0]}, no error"
