"""Per-head attention weights: numbers over a heat colour while they fit, a picture of blocks beyond that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from attnscope.render import heat
from attnscope.render.heads import (
    Head,
    head_line,
    head_of,
    labels_of,
    panels_of,
    row_label,
    row_label_width,
)
from attnscope.render.layout import INDENT, blank, clip, heading, paragraph
from attnscope.render.pictures import draw_picture, draw_strongest, draw_thumbnails
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Attention, Token

# More pictures than this are an overview first: `--head` and `--layer-index` give the large ones.
FULL_PICTURES = 8


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
        datas = [head_of(number, one, head, batch) for head in some]
        labels = labels_of(style, tokens, datas[0].queries), labels_of(style, tokens, datas[0].keys)
        if all(_numbers_fit(style, data, labels[0], precision) for data in datas):
            lines += panels_of(style, [_table(style, data, labels, precision) for data in datas])
        elif total <= FULL_PICTURES:
            for data in datas:
                lines += [blank(), *draw_picture(style, data)]
                lines += [blank(), *draw_strongest(style, data, labels, precision)]
            drew_picture = True
        else:
            lines += draw_thumbnails(style, datas)
            drew_picture = True
        lines += _nan_lines(style, datas)
    if drew_picture:
        lines.append(blank())
        lines += heat.legend(style)
    return lines


def _cell_width(precision: int) -> int:
    return precision + 2 if precision > 0 else 1


def _numbers_fit(style: Style, data: Head, labels: Sequence[str], precision: int) -> bool:
    if data.weights is None:
        return False
    each = max(_cell_width(precision), 3, len(str(data.keys - 1))) + 1
    return len(INDENT) + row_label_width(labels, data.queries) + 2 + each * data.keys <= style.width and (
        data.queries <= 64
    )


def _table(style: Style, data: Head, labels: tuple[list[str], list[str]], precision: int) -> Lines:
    """Head line, key labels, one line of numbers per query. Blocked cells have a mark and no heat."""
    assert data.weights is not None
    rows, columns = labels
    label_width = row_label_width(rows, data.queries)
    room = style.width - len(INDENT) - label_width - 2
    least = max(_cell_width(precision), 3, len(str(data.keys - 1)))
    wanted = max([least, *(min(9, cell_len(label)) for label in columns)])
    width = max(least, min(wanted, room // data.keys - 1))
    lines = [head_line(style, data, len(INDENT) + label_width + 2 + (width + 1) * data.keys)]
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
        line.append_text(row_label(style, query, rows[query], label_width, data.queries))
        line.append("  ")
        for value, gone in zip(data.weights[query].tolist(), data.blocked[query].tolist(), strict=True):
            line.append_text(_number(style, value, gone, width, precision))
        if not style.heat:
            line.rstrip()
        lines.append(line)
    return lines


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


def _nan_lines(style: Style, datas: Sequence[Head]) -> Lines:
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
