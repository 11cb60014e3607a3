"""Heads that are too large for numbers: a picture each, thumbnails of many, the strongest keys of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from attnscope.pooling import pool_blocks, pool_size, top_keys
from attnscope.render import heat
from attnscope.render.heads import (
    LABEL_WIDTH,
    Head,
    head_line,
    panels_of,
    row_label,
    row_label_width,
)
from attnscope.render.layout import INDENT, blank, clip, count, key_ruler, paragraph
from attnscope.render.terminal import Lines, Style

TOP_QUERIES = 16
TOP_KEYS = 4
THUMBNAIL_CELLS = 16


def _pooled(data: Head, across: int, down: int) -> tuple[NDArray[Any], NDArray[np.bool_], tuple[int, int]]:
    """Weights in at most `across` columns and `down` rows, which cells are wholly blocked, and the factor."""
    row_factor, column_factor = data.factor
    cells = data.weights if data.weights is not None else data.cells
    assert cells is not None
    more_rows = pool_size(cells.shape[0], down)
    more_columns = pool_size(cells.shape[1], across)
    if cells.shape[0] == cells.shape[1]:
        more_rows = more_columns = max(more_rows, more_columns)
    pooled = pool_blocks(cells, more_rows, more_columns)
    factor = row_factor * more_rows, column_factor * more_columns
    allowed = pool_blocks(~data.blocked, *factor) if data.blocked.any() else np.ones(pooled.shape, np.float32)
    return pooled, allowed == 0, factor


def _factor(factor: tuple[int, int]) -> str:
    if factor == (1, 1):
        return "one cell is one query × one key"
    cell = f"{count(factor[0], 'query', 'queries')} × {count(factor[1], 'key')}"
    return f"one cell is {cell}: summed over keys, mean over queries"


def draw_picture(style: Style, data: Head) -> Lines:
    label = len(str(max(0, data.queries - 1)))
    indent = len(INDENT) + len("query") + 1 + label + 2
    colored = style.heat and style.unicode
    each = 1 if colored else 2
    room = max(4, min(128, style.width - indent - 1) // each)
    # A page high at most: two rows share a line in colour.
    down = max(4, min(96 if colored else 48, room))
    values, blocked, factor = _pooled(data, room, down)
    body = heat.half_blocks(style, values, blocked) if colored else heat.shaded(style, values, blocked)
    lines = [head_line(style, data, style.width)]
    lines += key_ruler(style, indent, values.shape[1], factor[1], each, min(8, values.shape[1]))
    per_line = 2 if colored else 1
    for number, part in enumerate(body):
        line = Text(INDENT)
        line.append("query" if number == 0 else "     ", style("axis.T"))
        query = number * per_line * factor[0]
        line.append(f" {query if number % 4 == 0 else '':>{label}}  ", style("axis.T"))
        line.append_text(part)
        line.append(style.glyph("│", "|"), style("dim"))
        lines.append(line)
    return lines + paragraph(style, _factor(factor), first=" " * indent, look="dim")


def draw_thumbnails(style: Style, datas: Sequence[Head]) -> Lines:
    """All heads of a layer at a glance, side by side."""
    colored = style.heat and style.unicode
    panels: list[Lines] = []
    factor = (1, 1)
    for data in datas:
        values, blocked, factor = _pooled(data, THUMBNAIL_CELLS, THUMBNAIL_CELLS)
        if colored:
            body = heat.half_blocks(style, values, blocked)
        else:
            body = [
                Text(
                    "".join(
                        style.glyph("·", "'") if gone else heat.shade(style, value)
                        for value, gone in zip(row, no, strict=True)
                    )
                )
                for row, no in zip(values.tolist(), blocked.tolist(), strict=True)
            ]
        edge = style.glyph("│", "|")
        panels.append(
            [Text(INDENT).append(f"head {data.head}", style("axis.H"))]
            + [Text(INDENT).append_text(line).append(edge, style("dim")) for line in body]
        )
    title = Text(INDENT).append(f"layer {datas[0].layer}")
    if datas[0].module:
        title.append(
            "  " + clip(style.text(datas[0].module), style.width - title.cell_len - 2, style), style("dim")
        )
    return [
        blank(),
        title,
        *panels_of(style, panels)[1:],
        *paragraph(style, _factor(factor), first=INDENT, look="dim"),
    ]


def draw_strongest(style: Style, data: Head, labels: tuple[list[str], list[str]], precision: int) -> Lines:
    """The heaviest keys of each query, of evenly spread queries where there are many."""
    if data.top_keys is not None and data.top_weights is not None:
        index, weight = data.top_keys, data.top_weights
    else:
        assert data.weights is not None
        index, weight = top_keys(data.weights, TOP_KEYS)
    if not index.shape[1]:
        return []
    if data.queries <= TOP_QUERIES:
        queries = list(range(data.queries))
    else:
        queries = sorted(
            {round(place * (data.queries - 1) / (TOP_QUERIES - 1)) for place in range(TOP_QUERIES)}
        )
    rows, columns = labels
    label_width = row_label_width([rows[query] for query in queries], data.queries)
    said = "strongest keys per query"
    if len(queries) < data.queries:
        said += f", {len(queries)} of {data.queries:,} queries"
    lines = paragraph(style, said, first=INDENT, look="dim")
    arrow = style.glyph(" ← ", " <- ")
    for query in queries:
        line = Text(INDENT)
        line.append_text(row_label(style, query, rows[query], label_width, data.queries))
        line.append(arrow, style("dim"))
        first = True
        for key, value in zip(index[query].tolist(), weight[query].tolist(), strict=True):
            if value != value or (value == 0 and not first) or (data.blocked[query, key] and value == 0):
                break
            name = clip(columns[key], LABEL_WIDTH, style)
            part = Text()
            if not first:
                part.append("  ")
            part.append(str(key), style("axis.S"))
            part.append(f" {name} " if name else ": ")
            part.append(f"{value:.{precision}f}", style("strong"))
            if line.cell_len + part.cell_len > style.width:
                break
            line.append_text(part)
            first = False
        if first:
            line.append("nan" if np.isnan(weight[query]).any() else style.glyph("–", "-"), style("error"))
        lines.append(line)
    return lines
