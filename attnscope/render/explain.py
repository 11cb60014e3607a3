"""What a code means, with its example and its cure; and the list of all codes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from attnscope.codebook import Explanation
from attnscope.render.layout import INDENT, Column, blank, clip, heading, indented, paragraph, table
from attnscope.render.terminal import Lines, Style


def draw_explanation(style: Style, one: Explanation) -> Lines:
    """Title, meaning, example, cure, and what the cure changes in the example."""
    lines: Lines = [*_title(style, one), blank()]
    for part in one.meaning.split("\n\n"):
        lines += [*paragraph(style, " ".join(part.split()), first=INDENT, rest=INDENT), blank()]
    lines += [heading(style, "example"), blank(), *_code(style, one.example), blank()]
    cure = " ".join(one.cure.split())
    lines += [heading(style, "cure"), blank(), *paragraph(style, cure, first=INDENT, rest=INDENT)]
    return [*lines, blank(), *_code(style, one.change)] if one.change else lines


def _code(style: Style, source: str) -> Lines:
    lines = source.rstrip("\n").split("\n")
    return [Text(clip(style.text(INDENT + INDENT + line).rstrip(), style.width, style)) for line in lines]


def _title(style: Style, one: Explanation) -> Lines:
    return paragraph(style, one.title, first=f"{one.code}  ", rest=" " * 7, look="title")


def draw_codes(style: Style, codes: Sequence[Explanation]) -> Lines:
    """One row for each code."""
    lines: Lines = [heading(style, "codes", "attnscope explain CODE says more"), blank()]
    cells = [[Text(one.code, style("title")), Text(style.text(one.title))] for one in codes]
    return lines + indented(table(style, (Column(), Column()), cells))
