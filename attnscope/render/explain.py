"""What a code means, with its example and its cure; and the list of all codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from attnscope.codebook import Explanation
from attnscope.render.layout import INDENT, blank, clip, heading, paragraph, rows
from attnscope.render.terminal import Lines, Style


def draw_explanation(style: Style, one: Explanation) -> Lines:
    """Title, meaning, example, cure."""
    lines: Lines = [*_title(style, one), blank()]
    for part in one.meaning.split("\n\n"):
        lines += [*paragraph(style, " ".join(part.split()), first=INDENT, rest=INDENT), blank()]
    lines += [heading(style, "example"), blank()]
    for source in one.example.rstrip("\n").split("\n"):
        lines.append(Text(clip(style.text(INDENT + INDENT + source).rstrip(), style.width, style)))
    cure = " ".join(one.cure.split())
    return [
        *lines,
        blank(),
        heading(style, "cure"),
        blank(),
        *paragraph(style, cure, first=INDENT, rest=INDENT),
    ]


def _title(style: Style, one: Explanation) -> Lines:
    return paragraph(style, one.title, first=f"{one.code}  ", rest=" " * 7, look="title")


def draw_codes(style: Style, codes: Sequence[Explanation]) -> Lines:
    """One row for each code."""
    lines: Lines = [heading(style, "codes", "attnscope explain CODE says more"), blank()]
    width = max(20, style.width - 2 - 5 - 2)
    for one in codes:
        code = [Text(one.code, style("title"))]
        titles = paragraph(replace(style, width=width), one.title)
        lines += [Text(INDENT).append_text(line) for line in rows([code, titles], (5, width))]
    return lines
