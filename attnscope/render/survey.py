"""What `check` says of several targets: the findings of each, then one table of all."""

from __future__ import annotations

from rich.text import Text

from attnscope.diagnostic import Report, Survey, Unchecked
from attnscope.files import short_path
from attnscope.render.findings import draw_findings
from attnscope.render.header import draw_header
from attnscope.render.layout import INDENT, blank, count, heading, paragraph, rows, wrap
from attnscope.render.terminal import Lines, Style, cell_len

SEVERITIES = ("error", "warning", "note")


def draw_survey(style: Style, survey: Survey) -> Lines:
    """The reports that have something to say, but for what was tried; then a table of every target."""
    lines: Lines = []
    for report in survey.reports:
        if not report.findings and not report.notes:
            continue
        if report.model is not None:
            lines += [*draw_header(style, report.model), blank()]
        if report.findings:
            lines += [*draw_findings(style, report.findings, summary=False), blank()]
        for note in report.notes:
            lines += paragraph(style, f"note: {note}", look="dim")
        lines += [blank()] if report.notes else []
    return [*lines, *_table(style, survey)]


def _table(style: Style, survey: Survey) -> Lines:
    cells = [_row(style, one) for one in survey.targets]
    names = [style.text(short_path(one.target)) for one in survey.targets]
    room = style.width - len(INDENT) - 2 - 4
    verdict = max([cell_len(said) for _, _, said, _ in cells] + [len("verdict")])
    verdict = min(verdict, max(11, room // 4))
    name = max([cell_len(one) for one in names] + [len("target")])
    name = min(name, max(8, (room - verdict) * 3 // 5))
    widths = (name, verdict, max(5, room - name - verdict))
    lines: Lines = [heading(style, "checked", _summary(survey)), blank()]
    head = Text(INDENT + "  ")
    for word, width in zip(("target", "verdict", "codes"), widths, strict=True):
        head.append(f"{word:{width}}  ", style("dim"))
    head.rstrip()
    lines.append(head)
    for one, (mark, look, said, codes), target in zip(survey.targets, cells, names, strict=True):
        parts = [[Text(part) for part in wrap(target, name)]]
        parts += [[Text(part, style(look)) for part in wrap(said, verdict)]]
        parts += [[Text(part) for part in wrap(codes, widths[2])]]
        for number, line in enumerate(rows(parts, widths)):
            lines.append(Text(INDENT).append(mark if number == 0 else " ", style(look)).append(" ") + line)
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
