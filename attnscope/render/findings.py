"""Findings in the manner of a good compiler: the source, what is wrong under it, why, and how to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from attnscope.diagnostic import Diagnostic
from attnscope.files import read_line, short_path
from attnscope.render.layout import Column, blank, count, paragraph, style_lines, table, wrap
from attnscope.render.terminal import Lines, Style, cell_len, escape
from attnscope.schema import Span

TAB = 4
MOST_LINES_OF_A_SPAN = 4


@dataclass(frozen=True, slots=True)
class _Mark:
    """A stretch of one source line, in characters from 0, and what stands under it."""

    start: int
    end: int
    text: str
    primary: bool


def draw_findings(style: Style, findings: Sequence[Diagnostic], summary: bool = True) -> Lines:
    """All findings, and a line that counts them. Nothing for none."""
    lines: Lines = []
    for number, finding in enumerate(findings):
        if number:
            lines.append(blank())
        lines += draw_finding(style, finding)
    if findings and summary:
        lines += [blank(), summary_line(style, findings)]
    return lines


def summary_line(style: Style, findings: Sequence[Diagnostic]) -> Text:
    """`1 error, 2 warnings`"""
    parts = []
    for severity in ("error", "warning", "note"):
        number = sum(finding.severity == severity for finding in findings)
        if number:
            parts.append((count(number, severity), severity))
    line = Text()
    for place, (text, severity) in enumerate(parts):
        line.append(", " if place else "")
        line.append(text, style(severity))
    return line


def draw_finding(style: Style, finding: Diagnostic) -> Lines:
    """One finding: message, place, marked source, evidence, notes, help. Labels may lie in other files."""
    marks = _by_file(finding)
    numbers = [line for lines in marks.values() for line in lines]
    gutter = max((len(str(number)) for number in numbers), default=1)
    lines = _headline(style, finding)
    bar = _bar(style, gutter)
    for place, (file, by_line) in enumerate(marks.items()):
        span = _place(finding, file)
        arrow = "-->" if place == 0 else ":::"
        inside = f" in `{finding.module}`" if finding.module and place == 0 else ""
        where = style.text(f"{short_path(file)}:{span.line}:{span.column}{inside}")
        line = Text(" " * gutter)
        line.append(arrow, style("gutter"))
        line.append(" ")
        # A path is there to be opened: it is cut only where it cannot fit.
        for number, part in enumerate(_chunks(where, max(8, style.width - gutter - 4))):
            lines.append(line.append(part) if number == 0 else Text(" " * (gutter + 4) + part))
        lines.append(bar.copy())
        lines += _source_block(style, file, by_line, gutter)
    tail: Lines = []
    if finding.evidence:
        if marks:
            tail.append(bar.copy())
        tail += [
            *(_bar(style, gutter).append(" ").append_text(line) for line in _evidence(style, finding, gutter))
        ]
    if tail:
        lines += [*tail]
    entries = [("note", note) for note in finding.notes]
    if finding.help:
        entries.append(("help", finding.help))
    if entries and (marks or tail):
        lines.append(bar.copy())
    for word, text in entries:
        lines += _entry(style, gutter, word, text)
    return lines


def _headline(style: Style, finding: Diagnostic) -> Lines:
    head = f"{finding.severity}[{style.text(finding.code)}]" if finding.code else finding.severity
    lines: Lines = []
    first = cell_len(head) + 2
    indent = first if style.width - first >= 24 else 2
    for number, part in enumerate(wrap(style_lines(style, finding.message), max(8, style.width - first))):
        if number == 0:
            line = Text().append(head, style(finding.severity))
            line.append(": ", style("strong"))
        else:
            line = Text(" " * indent)
        lines.append(line.append(part, style("strong")))
    return lines


def _by_file(finding: Diagnostic) -> dict[str, dict[int, list[_Mark]]]:
    """Marks by file (the finding's own first) and line, lines in order."""
    labels: list[tuple[Span, str, bool]] = []
    if finding.span is not None:
        labels.append((finding.span, finding.label, True))
    labels += [(label.span, label.text, False) for label in finding.labels]
    files: dict[str, dict[int, list[_Mark]]] = {}
    for span, text, primary in labels:
        lines = files.setdefault(span.file, {})
        last = max(span.line, span.end_line)
        shown = list(range(span.line, last + 1))
        if len(shown) > MOST_LINES_OF_A_SPAN:
            shown = [*shown[: MOST_LINES_OF_A_SPAN - 1], last]
        for number in shown:
            source = read_line(span.file, number)
            start = span.column - 1 if number == span.line else len(source) - len(source.lstrip())
            end = span.end_column - 1 if number == last else len(source.rstrip())
            said = text if number == shown[-1] else ""
            mark = _Mark(max(0, start), max(end, start + 1), said, primary)
            lines.setdefault(number, []).append(mark)
    return {file: dict(sorted(lines.items())) for file, lines in files.items()}


def _place(finding: Diagnostic, file: str) -> Span:
    spans = [finding.span] if finding.span is not None else []
    spans += [label.span for label in finding.labels]
    return next(span for span in spans if span.file == file)


def _bar(style: Style, gutter: int, number: int | None = None) -> Text:
    line = Text()
    line.append(f"{number if number is not None else '':>{gutter}} |", style("gutter"))
    return line


def _source_block(style: Style, file: str, by_line: dict[int, list[_Mark]], gutter: int) -> Lines:
    lines: Lines = []
    previous: int | None = None
    dedent = _dedent([read_line(file, number) for number in by_line])
    for number, marks in by_line.items():
        if previous is not None and number > previous + 1:
            between = read_line(file, number - 1)
            if number == previous + 2 and between.strip():
                shown, _ = _window(style, between, 0, 1, style.width - gutter - 3, dedent)
                lines.append(_bar(style, gutter, number - 1).append(" ").append_text(shown))
            else:
                lines.append(_bar(style, gutter))
        lines += _marked_line(style, read_line(file, number), number, marks, gutter, dedent)
        previous = number
    return lines


def _marked_line(
    style: Style, source: str, number: int, marks: Sequence[_Mark], gutter: int, dedent: int
) -> Lines:
    room = max(8, style.width - gutter - 3)
    if not source:
        missing = Text("(the source cannot be read)", style("dim"))
        lines = [_bar(style, gutter, number).append(" ").append_text(missing)]
        for mark in marks:
            if mark.text:
                lines += _label_below(style, gutter, mark, 0, room)
        return lines
    ordered = sorted(marks, key=lambda mark: (mark.start, mark.end))
    start, end = ordered[0].start, max(mark.end for mark in ordered)
    shown, columns = _window(style, source, start, end, room, dedent)
    lines = [_bar(style, gutter, number).append(" ").append_text(shown)]
    width = shown.cell_len
    spots: list[tuple[int, int, _Mark]] = []
    for mark in ordered:
        left = min(columns[min(mark.start, len(source))], max(0, width - 1))
        right = max(left + 1, min(columns[min(mark.end, len(source))], max(width, left + 1)))
        spots.append((left, min(right, room), mark))
    under = [" "] * room
    looks = [""] * room
    # Secondary marks first: where two overlap, the primary one is seen.
    for left, right, mark in sorted(spots, key=lambda spot: spot[2].primary):
        for cell in range(left, min(right, room)):
            under[cell] = "^" if mark.primary else "-"
            looks[cell] = "primary" if mark.primary else "secondary"
    line = _bar(style, gutter).append(" ")
    text = "".join(under).rstrip()
    for cell, char in enumerate(text):
        line.append(char, _look(style, looks[cell]))
    said = [spot for spot in spots if spot[2].text]
    # The rightmost label stands behind its mark, if it ends the line and fits.
    waiting = list(said)
    if said:
        left, right, mark = max(said, key=lambda spot: spot[1])
        label = style.text(mark.text)
        if right == len(text) and right + 1 + cell_len(label) <= room:
            line.append(" ")
            line.append(label, _look(style, "primary" if mark.primary else "secondary"))
            waiting.remove((left, right, mark))
    lines.append(line)
    # The others hang below, the rightmost first, each from a stroke that the later ones keep.
    waiting.sort(key=lambda spot: spot[0])
    if waiting and (len(waiting) > 1 or len(said) > 1):
        lines.append(_strokes(style, gutter, waiting))
    while waiting:
        left, _, mark = waiting.pop()
        lines += _label_below(style, gutter, mark, left, room, waiting)
    return lines


def _look(style: Style, kind: str) -> str:
    if not kind:
        return ""
    return style("error") if kind == "primary" else style("gutter")


def _strokes(style: Style, gutter: int, spots: Sequence[tuple[int, int, _Mark]]) -> Text:
    line = _bar(style, gutter).append(" ")
    base = line.cell_len
    for left, _, mark in spots:
        if line.cell_len - base <= left:
            line.append(" " * (left - (line.cell_len - base)))
            line.append("|", _look(style, "primary" if mark.primary else "secondary"))
    return line


def _label_below(
    style: Style,
    gutter: int,
    mark: _Mark,
    left: int,
    room: int,
    others: Sequence[tuple[int, int, _Mark]] = (),
) -> Lines:
    """A label under its mark, wrapped; moved left where its own column leaves no room for words."""
    text = style.text(mark.text)
    look = _look(style, "primary" if mark.primary else "secondary")
    at = left
    if room - at < min(cell_len(text), 30):
        at = max(0, room - max(30, min(cell_len(text), room)))
    lines: Lines = []
    for part in wrap(text, room - at):
        line = _bar(style, gutter).append(" ")
        base = line.cell_len
        for other, _, hanging in others:
            if other < at - 1 and line.cell_len - base <= other:
                line.append(" " * (other - (line.cell_len - base)))
                line.append("|", _look(style, "primary" if hanging.primary else "secondary"))
        line.append(" " * (at - (line.cell_len - base)))
        lines.append(line.append(part, look))
    return lines


def _dedent(sources: Sequence[str]) -> int:
    """How many of the leading cells that all lines share are left out: all but one step of indentation."""
    indents = []
    for source in sources:
        if source.strip():
            expanded = source.expandtabs(TAB)
            indents.append(len(expanded) - len(expanded.lstrip(" ")))
    return max(0, min(indents, default=0) - TAB)


def _window(
    style: Style, source: str, start: int, end: int, room: int, dedent: int
) -> tuple[Text, list[int]]:
    """The source line as it is shown, and for each character the cell where it begins (one more for the end).

    Tabs become spaces, what a terminal would interpret becomes an escape. A line that is too long is cut
    around [start, end): from the right first, for the beginning of a line says what it does.
    """
    pieces: list[str] = []
    columns = [0]
    for char in source:
        shown = " " * (TAB - columns[-1] % TAB) if char == "\t" else _shown(style, char)
        pieces.append(shown)
        columns.append(columns[-1] + cell_len(shown))
    # Every piece of the indentation is made of spaces: what all lines share goes from the left.
    left = dedent
    for place, piece in enumerate(pieces):
        if left <= 0 or piece.strip(" "):
            break
        pieces[place] = piece[left:]
        left -= len(piece)
    columns = [max(0, column - dedent + max(0, left)) for column in columns]
    if columns[-1] <= room:
        return Text("".join(pieces).rstrip()), columns
    mark = style.glyph("…", "~")
    first = 0
    start_cell, end_cell = columns[min(start, len(source))], columns[min(end, len(source))]
    if min(end_cell, start_cell + room - 8) > room - 1:
        wanted = max(0, min(start_cell - 8, end_cell - room + 2))
        if end_cell - start_cell > room - 10:
            wanted = max(0, start_cell - 8)
        first = next((place for place, cell in enumerate(columns) if cell >= wanted), 0)
    base = columns[first] - (1 if first else 0)
    text = mark if first else ""
    used = cell_len(text)
    for piece in pieces[first:]:
        size = cell_len(piece)
        if used + size > room - 1:
            text += mark
            break
        text += piece
        used += size
    return Text(text), [max(0, column - base) for column in columns]


def _shown(style: Style, char: str) -> str:
    if " " <= char <= "~":
        return char
    # Source is quoted, not told: `→` in a comment becomes an escape in ASCII, not another arrow.
    return escape(char, style.unicode)


def _evidence(style: Style, finding: Diagnostic, gutter: int) -> Lines:
    """The small table of numbers: header dim, first column left, the others right."""
    size = max(len(line) for line in finding.evidence)
    shown = [[style.text(cell) for cell in line] + [""] * (size - len(line)) for line in finding.evidence]
    columns = [
        Column(least=4, whole=True, right=place > 0 and all(_numeric(line[place]) for line in shown[1:]))
        for place in range(size)
    ]
    cells = [
        [Text(cell, "" if number else style("dim")) for cell in line] for number, line in enumerate(shown)
    ]
    return table(style, columns, cells, style.width - gutter - 3)


def _numeric(cell: str) -> bool:
    return (bool(cell) and (cell[0].isdigit() or cell[0] in "-+.")) or cell in ("", "nan", "inf")


def _entry(style: Style, gutter: int, word: str, text: str) -> Lines:
    first = Text(" " * gutter)
    first.append(" = ", style("gutter"))
    first.append(word, style(word))
    return paragraph(style, text, first=first.append(": "))


def _chunks(text: str, width: int) -> list[str]:
    return wrap(text, width) if cell_len(text) > width else [text]
