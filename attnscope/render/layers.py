"""The table of built-in layers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from attnscope.render.layout import (
    INDENT,
    Column,
    blank,
    heading,
    indented,
    paragraph,
    table,
    with_axes,
    wrap_text,
)
from attnscope.render.terminal import Lines, Style
from attnscope.schema import LayerInfo


def draw_layers(style: Style, layers: Sequence[LayerInfo]) -> Lines:
    """Each layer: what it is, its options, its parameters with shapes, its steps, where it is from."""
    lines: Lines = [heading(style, "layers", "built in; all of them run offline")]
    for layer in layers:
        head = Text().append(style.text(layer.name), style("title")).append("  ")
        lines += [blank(), *paragraph(style, layer.title, first=head)]
        lines += _entry(style, "options", " ".join(layer.options))
        lines += _parameters(style, layer.parameters)
        lines += _entry(style, "steps", layer.steps)
        lines += _entry(style, "source", layer.source)
    return lines


def _entry(style: Style, name: str, text: str) -> Lines:
    if not text:
        return []
    first = Text().append(f"{INDENT}{name:<10}  ", style("dim"))
    parts = wrap_text(with_axes(style, style.text(text)), style.width - first.cell_len)
    return [
        Text().append_text(first if part is parts[0] else blank(first.cell_len)).append_text(part)
        for part in parts
    ]


def _parameters(style: Style, parameters: Sequence[tuple[str, str]]) -> Lines:
    """Names and shapes in two columns, each wrapped in its own."""
    titles = ["parameters", *[""] * len(parameters)]
    cells = [
        [Text(title, style("dim")), Text(style.text(name)), with_axes(style, style.text(shape))]
        for title, (name, shape) in zip(titles, parameters, strict=False)
    ]
    return indented(table(style, (Column(least=10), Column(), Column()), cells))
