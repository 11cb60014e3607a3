"""The first lines: what ran, of what sizes, with whose weights."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from attnscope.files import short_path
from attnscope.render.layout import INDENT, count, paragraph
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import ModelInfo


def draw_header(style: Style, model: ModelInfo, more: Sequence[str] = ()) -> Lines:
    """Name, sizes, number of parameters, seed, where the weights are from, what was guessed."""
    name = model.layer or short_path(model.target or "module")
    facts = [f"{key} {config_value(value)}" for key, value in model.config.items()]
    *lines, line = paragraph(style, name, look="title")
    lines += _facts(style, facts, line)
    about = [count(model.parameters, "parameter")]
    if model.seed is not None:
        about.append(f"seed {model.seed}")
    if model.weights:
        about.append(model.weights if "weight" in model.weights else f"{model.weights} weights")
    lines += _facts(style, about, Text(INDENT.rstrip(" ")), dim=True)
    for fact in more:
        lines += paragraph(style, fact, first=INDENT, look="dim")
    if model.guesses:
        lines += paragraph(style, "guessed: " + ", ".join(model.guesses), first=INDENT, look="dim")
    return lines


def config_value(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _facts(style: Style, facts: Sequence[str], line: Text, dim: bool = False) -> Lines:
    """Facts behind one another with a quiet mark between, wrapped between facts and never inside one."""
    lines = [line]
    mark = style.glyph(" · ", ", ")
    fresh = True
    for fact in facts:
        text = style.text(fact)
        gap = INDENT if fresh else mark
        if line.cell_len + cell_len(gap) + cell_len(text) > style.width and line.cell_len > len(INDENT):
            line = Text(INDENT)
            lines.append(line)
            gap = ""
        line.append(gap, style("dim"))
        if cell_len(text) > style.width - line.cell_len:
            parts = paragraph(style, fact, first=INDENT, look="dim")
            lines[-1:] = [item for item in (line,) if item.plain.strip()] + parts
            line = lines[-1]
        elif dim or " " not in text:
            line.append(text, style("dim") if dim else "")
        else:
            key, _, value = text.partition(" ")
            line.append(key + " ", style("dim"))
            line.append(value)
        fresh = False
    return lines
