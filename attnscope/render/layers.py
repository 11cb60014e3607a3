"""The table of built-in layers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from attnscope.render.layout import INDENT, blank, heading, rows, with_axes, wrap
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import LayerInfo


def draw_layers(style: Style, layers: Sequence[LayerInfo]) -> Lines:
    """Each layer: what it is, its options, its parameters with shapes, its steps, where it is from."""
    lines: Lines = [heading(style, "layers", "built in; all of them run offline")]
    for layer in layers:
        head = Text().append(style.text(layer.name), style("title"))
        lines += [blank()]
        titles = wrap(style.text(layer.title), style.width - head.cell_len - 2)
        for number, title in enumerate(titles):
            line = head.append("  ") if number == 0 else Text(" " * (cell_len(style.text(layer.name)) + 2))
            lines.append(line.append(title))
        lines += _entry(style, "options", [" ".join(layer.options)])
        lines += _parameters(style, layer.parameters)
        lines += _entry(style, "steps", [layer.steps])
        lines += _entry(style, "source", [layer.source])
    return lines


def _entry(style: Style, name: str, texts: Sequence[str]) -> Lines:
    lines: Lines = []
    first = f"{INDENT}{name:<10}  "
    for text in texts:
        if not text:
            continue
        for part in (
            wrap(style.text(text), style.width - len(first))
            if cell_len(style.text(text)) > style.width - len(first)
            else [style.text(text)]
        ):
            line = Text().append(first if not lines else " " * len(first), style("dim"))
            lines.append(line.append_text(with_axes(style, part)))
    return lines


def _parameters(style: Style, parameters: Sequence[tuple[str, str]]) -> Lines:
    """Names and shapes in two columns, each wrapped in its own."""
    if not parameters:
        return []
    names = [style.text(name) for name, _ in parameters]
    room = style.width - len(INDENT) - 14
    left = max(8, min(max(map(cell_len, names)), room // 2))
    widths = (10, left, max(8, room - left))
    lines: Lines = []
    for number, (name, (_, shape)) in enumerate(zip(names, parameters, strict=True)):
        title = [Text().append("parameters" if number == 0 else "", style("dim"))]
        shapes = [with_axes(style, part) for part in wrap(style.text(shape), widths[2])]
        cells = [title, [Text(part) for part in wrap(name, left)], shapes]
        lines += [Text(INDENT).append_text(line) for line in rows(cells, widths)]
    return lines
