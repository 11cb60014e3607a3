"""The page that `--help` shows: usage, what the command does, its options in panels, two examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from attnscope.render.layout import blank, clip, pad, rows, wrap
from attnscope.render.terminal import Lines, Style

WIDEST_PROSE = 100  # longer lines are hard to read
WIDEST_NAME = 32

_WORDS = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
_NAMES = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


@dataclass(frozen=True, slots=True)
class Row:
    """An option, an argument or a command. `short` is empty, or such as `-o`; `value` what it takes."""

    name: str
    text: str
    short: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows under one title."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """All that one `--help` says. `about` are paragraphs; `examples` are whole command lines."""

    usage: str
    about: tuple[str, ...]
    panels: tuple[Panel, ...]
    examples: tuple[str, ...]


def draw_help(style: Style, page: Page) -> Lines:
    """The page, as wide as the style; the examples at its end can be pasted at any width."""
    command, _, rest = page.usage.partition(" [")
    lines: Lines = []
    usage = Text("usage: ", style("dim")).append(command, style("strong"))
    usage.append(f" [{rest}" if rest else "")
    lines += [usage, blank()]
    for paragraph in page.about:
        for part in wrap(style.text(paragraph), min(style.width, WIDEST_PROSE)):
            lines.append(_with_names(style, part))
        lines.append(blank())
    inside = style.width - 4
    for panel in page.panels:
        alike = [one for one in page.panels if _is_of_options(one) == _is_of_options(panel)]
        most = max(cell_len(_name(row)) for one in alike for row in one.rows)
        lines += _panel(style, panel, min(most, WIDEST_NAME, max(10, inside // 2 - 2)), inside)
    lines += [blank(), Text("examples", style("title")), blank()]
    for example in page.examples:
        lines += [Text(part) for part in _pasted(example, style.width - 2)]
    return lines


def _is_of_options(panel: Panel) -> bool:
    return any(row.name.startswith("-") for row in panel.rows)


def _name(row: Row) -> str:
    short = f"{row.short}, " if row.short else "    " if row.name.startswith("--") else ""
    return short + row.name + (f" {row.value}" if row.value else "")


def _panel(style: Style, panel: Panel, name: int, inside: int) -> Lines:
    corners = style.glyph("╭╮╰╯", "++++")
    across, upright = style.glyph("─", "-"), Text(style.glyph("│", "|"), style("dim"))
    title = clip(style.text(panel.title), inside - 2, style)
    top = Text().append(corners[0] + across + " ", style("dim")).append(title, style("title"))
    top.append(" " + across * (inside - cell_len(title) - 1) + corners[1], style("dim"))
    lines: Lines = [top]
    room = inside - name - 2
    for row in panel.rows:
        text: Lines = [_with_names(style, part) for part in wrap(style.text(row.text), room)]
        names = _name_lines(style, row, name)
        if len(names) > 1:  # a name that is too long stands in a line of its own
            text = [blank()] * (len(names) - 1) + text
        for line in rows([names, text], (name, room)):
            body = Text.assemble(upright, " ", pad(line, inside), " ", upright)
            lines.append(body)
    lines.append(Text(corners[2] + across * (inside + 2) + corners[3], style("dim")))
    return lines


def _name_lines(style: Style, row: Row, width: int) -> Lines:
    lines: Lines = []
    for part in wrap(style.text(_name(row)), width) if cell_len(_name(row)) > width else [_name(row)]:
        line = Text(part, style("option"))
        if row.value and part.endswith(row.value):
            line.stylize(style("value"), len(part) - len(row.value))
        lines.append(line)
    return lines


def _with_names(style: Style, text: str) -> Text:
    line = Text(text)
    for found in _NAMES.finditer(text) if style.color else ():
        line.stylize(style("gutter"), *found.span())
    return line


def _pasted(example: str, width: int) -> Sequence[str]:
    """A command line, cut between its words where it is too long for the width, so that it still works."""
    lines, line = [], ""
    for word in _WORDS.findall(example):
        longer = f"{line} {word}" if line else word
        if line and cell_len(longer) > width - 2 and cell_len(example) > width:
            lines.append(f"  {line} \\")
            longer = f"  {word}"
        line = longer
    return [*lines, f"  {line}"]
