"""Small pieces that every drawing is laid out from: headings, columns, wrapping, tensor shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from attnscope.render.terminal import Lines, Style
from attnscope.schema import TensorInfo

INDENT = "  "
# An axis name stands alone, or behind a factor: `T`, `3C`.
_AXIS = re.compile(r"(?<![A-Za-z0-9_.])\d*([BTSCHGD])(?![A-Za-z0-9_.(=])")


def blank(cells: int = 0) -> Text:
    return Text(" " * cells)


def spaced(parts: Iterable[Lines]) -> Lines:
    """Sections with a blank line between them; empty ones are left out."""
    lines: Lines = []
    for part in parts:
        if part:
            lines += [*([blank()] if lines else []), *part]
    return lines


def notes(style: Style, texts: Iterable[str]) -> Lines:
    return [line for text in texts for line in paragraph(style, text, first="note: ", look="dim")]


def heading(style: Style, title: str, facts: str = "") -> Text:
    """`shapes  multihead.py`: the title bold, what is to be known of the section behind it."""
    line = Text()
    line.append(style.text(title), style("title"))
    if facts:
        room = style.width - line.cell_len - 2
        if room > 3:
            line.append("  ")
            line.append(clip(style.text(facts), room, style), style("dim"))
    return line


def headed(style: Style, title: str, facts: str) -> Lines:
    """As `heading`, the facts wrapped in place of cut."""
    first, *rest = wrap(style.text(facts), style.width - cell_len(title) - 2)
    return [
        heading(style, title, first),
        *(Text(" " * (cell_len(title) + 2)).append(part, style("dim")) for part in rest),
    ]


def clip(text: str, width: int, style: Style) -> str:
    """`text` cut to `width` cells, its end replaced by a mark that says so."""
    if cell_len(text) <= width:
        return text
    mark = style.glyph("…", "~")
    kept, cells = [], 0
    for char in text:
        cells += cell_len(char)
        if cells > width - 1:
            break
        kept.append(char)
    return ("".join(kept) + mark) if width >= 1 else ""


def clip_left(text: str, width: int, style: Style) -> str:
    """`text` cut to its last `width` cells: the end of a path says the most."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    mark = style.glyph("…", "~")
    kept, cells = [], 0
    for char in reversed(text):
        cells += cell_len(char)
        if cells > width - 1:
            break
        kept.append(char)
    return mark + "".join(reversed(kept))


def wrap(text: str, width: int) -> list[str]:
    """Break at spaces, not inside `[...]`; a word that is longer still is broken: nothing may be lost."""
    width = max(1, width)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line, used = "", 0
        for word in _words(paragraph):
            size = cell_len(word)
            if used and used + 1 + size <= width:
                line, used = f"{line} {word}", used + 1 + size
                continue
            if used:
                lines.append(line.rstrip())
            while size > width:
                head, word = _break(word, width)
                lines.append(head)
                size = cell_len(word)
            line, used = word, size
        lines.append(line.rstrip())
    return lines


def _words(paragraph: str) -> list[str]:
    """Words, the spaces in front of them kept (`view  C 16`), what stands in brackets as one word."""
    if len(paragraph) > 2000:
        return paragraph.split()
    return [word for word in re.split(r"(?<![→×↔@])(?<!->) (?=\S)(?![^\[\]]*\])", paragraph.strip()) if word]


def _break(word: str, width: int) -> tuple[str, str]:
    cells = 0
    for position, char in enumerate(word):
        cells += cell_len(char)
        if cells > width:
            cut = max(1, position)
            return word[:cut], word[cut:]
    return word, ""


def paragraph(
    style: Style, text: str, *, first: str | Text = "", rest: str | None = None, look: str = ""
) -> Lines:
    """Wrapped text behind `first`, later lines behind `rest` (spaces as wide as `first`)."""
    start = Text(first) if isinstance(first, str) else first.copy()
    rest = " " * start.cell_len if rest is None else rest
    lines: Lines = []
    for number, part in enumerate(wrap(style_lines(style, text), style.width - start.cell_len)):
        line = start if number == 0 else Text(rest)
        line.append(part, style(look) if look else "")
        line.rstrip()
        lines.append(line)
    return lines


def wrap_text(text: Text, width: int) -> Lines:
    """As `wrap`, the colours kept."""
    if text.cell_len <= width and "\n" not in text.plain:
        return [text]
    lines: Lines = []
    at = 0
    for part in wrap(text.plain, width):
        found = text.plain.find(part, at)
        lines.append(Text(part, text.style) if found < 0 else text[found : found + len(part)])
        at = max(at, found + len(part))
    return lines


def style_lines(style: Style, text: str) -> str:
    """Escape, but keep the line breaks that a message was given."""
    return "\n".join(style.text(part) for part in text.split("\n"))


def pad(text: Text, width: int, right: bool = False) -> Text:
    """`text` filled with spaces to `width` cells."""
    missing = width - text.cell_len
    if missing <= 0:
        return text
    if right:
        return Text(" " * missing).append_text(text)
    return text.copy().append(" " * missing)


def row(
    cells: Sequence[Text], widths: Sequence[int], gaps: Sequence[int] = (), right: Iterable[int] = ()
) -> Text:
    """One line of aligned cells, without spaces at its end; `gaps` (2 each) stand behind them."""
    rights = frozenset(right)
    line = Text()
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        line.append_text(pad(cell, width, number in rights))
        line.append(" " * (gaps[number] if gaps else 2))
    line.rstrip()
    return line


def rows(
    cells: Sequence[Sequence[Text]],
    widths: Sequence[int],
    gaps: Sequence[int] = (),
    right: Iterable[int] = (),
) -> Lines:
    """A table row whose cells may have several lines each."""
    height = max((len(cell) for cell in cells), default=0)
    empty = Text("")
    return [
        row([cell[number] if number < len(cell) else empty for cell in cells], widths, gaps, right)
        for number in range(height)
    ]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, the cells that it keeps at least, on which side its cells stand.

    `whole`: what does not fit is cut, with a mark, in place of wrapped. `gap` spaces stand behind it.
    """

    title: str = ""
    least: int = 8
    right: bool = False
    whole: bool = False
    gap: int = 2


MARK = Column(least=1, gap=1)


def table(style: Style, columns: Sequence[Column], cells: Sequence[Sequence[Text]], width: int = 0) -> Lines:
    """Rows of cells in columns as wide as they need; where all do not fit, the widest gives way first.

    A cell that does not fit its column is wrapped. `width` is what there is room for, by default all that is
    left behind the indentation. The first line has the titles, if there are any.
    """
    return [line for lines in table_rows(style, columns, cells, width) for line in lines]


def table_rows(
    style: Style, columns: Sequence[Column], cells: Sequence[Sequence[Text]], width: int = 0
) -> list[Lines]:
    """The lines of each row of a `table`, for who puts something between them."""
    gaps = [column.gap for column in columns]
    width = (width or style.width - len(INDENT)) - sum(gaps[:-1])
    if not cells:
        return []
    titles = [Text(column.title, style("dim")) for column in columns]
    everything = [titles, *cells] if any(column.title for column in columns) else cells
    widths = [
        max((min(line[n].cell_len, width) for line in everything), default=0) for n in range(len(columns))
    ]
    while (excess := sum(widths) - width) > 0:
        flexible = [n for n, column in enumerate(columns) if widths[n] > max(column.least, len(column.title))]
        if not flexible:
            break
        widest = max(flexible, key=widths.__getitem__)
        others = [widths[n] for n in flexible if widths[n] < widths[widest]]
        floor = max([columns[widest].least, len(columns[widest].title), *others])
        widths[widest] -= min(excess, max(1, widths[widest] - floor))
    right = [number for number, column in enumerate(columns) if column.right]
    drawn: list[Lines] = []
    for line in everything:
        wrapped = [
            [Text(clip(cell.plain, size, style), cell.style)] if column.whole else wrap_text(cell, size)
            for cell, size, column in zip(line, widths, columns, strict=True)
        ]
        drawn.append(rows(wrapped, widths, gaps, right))
    return drawn


def indented(lines: Iterable[Text]) -> Lines:
    return [Text(INDENT).append_text(line) for line in lines]


def key_ruler(style: Style, indent: int, cells: int, step: int, each: int, every: int) -> Lines:
    """The key axis over a picture: its name, and the indices of cells of `step` keys as often as they fit.

    A cell is `each` characters wide; an index stands over every `every`-th at most.
    """
    top = Text(" " * indent).append("key", style("axis.S"))
    numbers = ""
    widest = len(str((cells - 1) * step))
    while every * each < widest + 1:
        every = {1: 2, 2: 5, 5: 10}.get(every, every * 2)
    for cell in range(0, cells, every):
        word = str(cell * step)
        if cell * each + len(word) <= cells * each:
            numbers = numbers.ljust(cell * each) + word
    return [top, Text(" " * indent).append(numbers, style("axis.S"))]


def name_style(style: Style, name: str) -> str:
    """The constant colour of an axis name: that of its letter (`3C` has C's), none for other names."""
    match = _AXIS.fullmatch(name)
    return style(f"axis.{match.group(1)}") if match else ""


def with_axes(style: Style, text: str, look: str = "") -> Text:
    """Text in which the axis letters bear their colours. `text` must be escaped already."""
    line = Text(text, style(look) if look else "")
    if style.color:
        for match in _AXIS.finditer(text):
            line.stylize(style(f"axis.{match.group(1)}"), match.start(), match.end())
    return line


def shape_text(style: Style, info: TensorInfo) -> Text:
    """`[B 1, T 6, H 2, D 8]`; an axis that nothing names is its size alone."""
    line = Text()
    line.append("[", style("dim"))
    names = info.axes if len(info.axes) == len(info.shape) else (None,) * len(info.shape)
    for number, (size, name) in enumerate(zip(info.shape, names, strict=True)):
        if number:
            line.append(", ", style("dim"))
        if name:
            line.append(style.text(name), name_style(style, name))
            line.append(" ")
        line.append(str(size))
    line.append("]", style("dim"))
    return line


def count(number: int, noun: str, many: str = "") -> str:
    """`1 error`, `2 errors`, `1,024 parameters`, `2 queries`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {many or noun + 's'}"
