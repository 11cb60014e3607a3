"""Per-head attention weights: numbers over a heat colour while they fit, a picture of blocks beyond that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from attnscope.pooling import pool_blocks, pool_size, top_keys
from attnscope.render import heat
from attnscope.render.layout import INDENT, blank, clip, count, heading, key_ruler, paragraph
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Attention, Token

LABEL_WIDTH = 12
TOP_QUERIES = 16
TOP_KEYS = 4
PANEL_GAP = 3
THUMBNAIL_CELLS = 16
# More pictures than this are an overview first: `--head` and `--layer-index` give the large ones.
FULL_PICTURES = 8


@dataclass(frozen=True, slots=True)
class _Head:
    """One head of one attention, one batch entry: its weights, or what pooling left of them."""

    layer: int
    module: str
    head: int
    blocked: NDArray[np.bool_]
    queries: int
    keys: int
    weights: NDArray[Any] | None = None
    cells: NDArray[Any] | None = None
    factor: tuple[int, int] = (1, 1)
    top_keys: NDArray[np.int64] | None = None
    top_weights: NDArray[np.float32] | None = None


def draw_weights(
    style: Style,
    attention: Sequence[Attention],
    tokens: Sequence[Token] = (),
    *,
    heads: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    precision: int = 2,
    batch: int = 0,
) -> Lines:
    """The weights of every attention of a trace, or of the `layers` and `heads` that are picked.

    Tokens label both axes where their number fits; other axes are labelled by index.
    """
    if not attention:
        return [heading(style, "weights", "no attention was found")]
    picked = [(number, one) for number, one in enumerate(attention) if layers is None or number in layers]
    shown = [
        (number, one, [head for head in range(one.heads) if heads is None or head in heads])
        for number, one in picked
    ]
    total = sum(len(some) for _, _, some in shown)
    lines: Lines = []
    batches = max((one.shape[0] for _, one in picked), default=1)
    facts = "query rows, key columns"
    if batches > 1:
        facts += f", batch entry {batch} of {batches}"
    lines.append(heading(style, "weights", facts))
    drew_picture = False
    for number, one, some in shown:
        if not some:
            continue
        if one.note:
            lines.append(blank())
            lines += paragraph(style, one.note, first=INDENT, look="dim")
        if one.weights is None and one.pooled is None:
            said = f"layer {number}: the weights were not kept"
            lines += [blank(), *paragraph(style, said, first=INDENT, look="dim")]
            continue
        datas = [_head(number, one, head, batch) for head in some]
        labels = _labels(style, tokens, datas[0].queries), _labels(style, tokens, datas[0].keys)
        if all(_numbers_fit(style, data, labels[0], precision) for data in datas):
            lines += _panels(style, [_table(style, data, labels, precision) for data in datas])
        elif total <= FULL_PICTURES:
            for data in datas:
                lines += [blank(), *_picture(style, data)]
                lines += [blank(), *_top(style, data, labels, precision)]
            drew_picture = True
        else:
            lines += _thumbnails(style, datas)
            drew_picture = True
        lines += _nan_lines(style, datas)
    if drew_picture:
        lines.append(blank())
        lines += heat.legend(style)
    return lines


def _head(layer: int, one: Attention, head: int, batch: int) -> _Head:
    _, _, queries, keys = one.shape
    if one.mask is None:
        blocked = np.zeros((queries, keys), np.bool_)
    else:
        blocked = ~one.mask[min(batch, one.mask.shape[0] - 1)]
    head_of = (batch, head)
    whole, pooled = one.weights, one.pooled
    if whole is None and pooled is not None and pooled.factor == (1, 1):
        whole = pooled.weights
    if whole is not None:
        return _Head(layer, one.module, head, blocked, queries, keys, weights=whole[head_of])
    assert pooled is not None
    return _Head(
        layer,
        one.module,
        head,
        blocked,
        queries,
        keys,
        cells=pooled.weights[head_of],
        factor=pooled.factor,
        top_keys=pooled.top_keys[head_of],
        top_weights=pooled.top_weights[head_of],
    )


def _labels(style: Style, tokens: Sequence[Token], length: int) -> list[str]:
    """`3 ·with` for each position; the index alone where the tokens are not those of this axis."""
    if len(tokens) != length:
        return [""] * length
    return [style.piece(token.piece) for token in tokens]


# --- numbers --------------------------------------------------------------------------------------------


def _cell_width(precision: int) -> int:
    return precision + 2 if precision > 0 else 1


def _row_label_width(labels: Sequence[str], queries: int) -> int:
    names = min(LABEL_WIDTH, max((cell_len(label) for label in labels), default=0))
    return len(str(max(0, queries - 1))) + (1 + names if names else 0)


def _numbers_fit(style: Style, data: _Head, labels: Sequence[str], precision: int) -> bool:
    if data.weights is None:
        return False
    each = max(_cell_width(precision), 3, len(str(data.keys - 1))) + 1
    return len(INDENT) + _row_label_width(labels, data.queries) + 2 + each * data.keys <= style.width and (
        data.queries <= 64
    )


def _table(style: Style, data: _Head, labels: tuple[list[str], list[str]], precision: int) -> Lines:
    """Head line, key labels, one line of numbers per query. Blocked cells have a mark and no heat."""
    assert data.weights is not None
    rows, columns = labels
    label_width = _row_label_width(rows, data.queries)
    room = style.width - len(INDENT) - label_width - 2
    least = max(_cell_width(precision), 3, len(str(data.keys - 1)))
    wanted = max([least, *(min(9, cell_len(label)) for label in columns)])
    width = max(least, min(wanted, room // data.keys - 1))
    lines = [_head_line(style, data, len(INDENT) + label_width + 2 + (width + 1) * data.keys)]
    indent = " " * (len(INDENT) + label_width + 2)
    index = Text(indent)
    names = Text(indent)
    for key, label in enumerate(columns):
        index.append(f"{key:>{width}} ", style("axis.S"))
        short = clip(label, width, style)
        names.append(" " * (width - cell_len(short)) + short + " ", style("dim"))
    index.rstrip()
    lines.append(index)
    # A label cut to one letter says nothing; the rows name the same tokens in full.
    if any(columns) and width >= 5:
        names.rstrip()
        lines.append(names)
    for query in range(data.queries):
        line = Text(INDENT)
        line.append_text(_row_label(style, query, rows[query], label_width, data.queries))
        line.append("  ")
        for value, gone in zip(data.weights[query].tolist(), data.blocked[query].tolist(), strict=True):
            line.append_text(_number(style, value, gone, width, precision))
        if not style.heat:
            line.rstrip()
        lines.append(line)
    return lines


def _head_line(style: Style, data: _Head, width: int) -> Text:
    """`layer 0 · head 1  blocks.0.attn`; the module only where `width` has room for it."""
    line = Text(INDENT)
    line.append(f"layer {data.layer}")
    line.append(style.glyph(" · ", ", "), style("dim"))
    line.append(f"head {data.head}", style("axis.H"))
    module = style.text(data.module)
    if module and line.cell_len + 2 + cell_len(module) <= width:
        line.append("  " + module, style("dim"))
    return line


def _row_label(style: Style, query: int, label: str, width: int, queries: int) -> Text:
    line = Text()
    line.append(f"{query:>{len(str(max(0, queries - 1)))}}", style("axis.T"))
    if label:
        line.append(" ")
        line.append(clip(label, width - line.cell_len, style))
    line.append(" " * (width - line.cell_len))
    return line


def _number(style: Style, value: float, blocked: bool, width: int, precision: int) -> Text:
    """One cell of `width` and a space. NaN stands out; a blocked cell is no number unless it has weight."""
    if value != value:
        return Text().append(f"{'nan':>{width}}", style("error")).append(" ")
    if blocked and value == 0:
        return Text().append(f"{style.glyph('·', '.'):>{width}}", style("dim")).append(" ")
    text = f"{value:>{width}.{precision}f}"
    if len(text) > width:
        text = f"{value:.0e}"[:width].rjust(width)
    if blocked:
        return Text().append(text, style("error")).append(" ")
    if style.heat:
        return Text().append(text + " ", heat.cell_style(style, value))
    return Text(text + " ")


def _panels(style: Style, panels: Sequence[Lines]) -> Lines:
    """Drawings side by side, as many as fit, else below one another."""
    lines: Lines = []
    waiting: list[tuple[Lines, int]] = []
    used = 0

    def flush() -> None:
        if not waiting:
            return
        lines.append(blank())
        for number in range(max(len(panel) for panel, _ in waiting)):
            line = Text()
            start = 0
            for panel, width in waiting:
                line.append(" " * (start - line.cell_len))
                if number < len(panel):
                    line.append_text(panel[number])
                start += width + PANEL_GAP - 1
            lines.append(line)
        waiting.clear()

    for panel in panels:
        width = max(line.cell_len for line in panel)
        if waiting and used + PANEL_GAP - 1 + width > style.width:
            flush()
            used = 0
        used += width + (PANEL_GAP - 1 if waiting else 0)
        waiting.append((panel, width))
    flush()
    return lines


# --- pictures -------------------------------------------------------------------------------------------


def _pooled(data: _Head, across: int, down: int) -> tuple[NDArray[Any], NDArray[np.bool_], tuple[int, int]]:
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


def _picture(style: Style, data: _Head) -> Lines:
    label = len(str(max(0, data.queries - 1)))
    indent = len(INDENT) + len("query") + 1 + label + 2
    colored = style.heat and style.unicode
    each = 1 if colored else 2
    room = max(4, min(128, style.width - indent - 1) // each)
    # A page high at most: two rows share a line in colour.
    down = max(4, min(96 if colored else 48, room))
    values, blocked, factor = _pooled(data, room, down)
    body = heat.half_blocks(style, values, blocked) if colored else heat.shaded(style, values, blocked)
    lines = [_head_line(style, data, style.width)]
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


def _thumbnails(style: Style, datas: Sequence[_Head]) -> Lines:
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
        *_panels(style, panels)[1:],
        *paragraph(style, _factor(factor), first=INDENT, look="dim"),
    ]


def _top(style: Style, data: _Head, labels: tuple[list[str], list[str]], precision: int) -> Lines:
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
    label_width = _row_label_width([rows[query] for query in queries], data.queries)
    said = "strongest keys per query"
    if len(queries) < data.queries:
        said += f", {len(queries)} of {data.queries:,} queries"
    lines = paragraph(style, said, first=INDENT, look="dim")
    arrow = style.glyph(" ← ", " <- ")
    for query in queries:
        line = Text(INDENT)
        line.append_text(_row_label(style, query, rows[query], label_width, data.queries))
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


def _nan_lines(style: Style, datas: Sequence[_Head]) -> Lines:
    lines: Lines = []
    for data in datas:
        matrix = data.weights if data.weights is not None else data.top_weights
        if matrix is None:
            continue
        bad = np.flatnonzero(np.isnan(matrix).any(axis=-1)).tolist()
        if bad:
            some = ", ".join(map(str, bad[:12])) + (f" and {len(bad) - 12:,} more" if len(bad) > 12 else "")
            word = "query" if len(bad) == 1 else "queries"
            lines += paragraph(style, f"head {data.head}: nan in {word} {some}", first=INDENT, look="error")
    return lines
