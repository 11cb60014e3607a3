"""One head of one attention: what is drawn of it, its labels, and heads side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from attnscope.render.layout import INDENT, blank, clip
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Attention, Token

LABEL_WIDTH = 12
PANEL_GAP = 3


@dataclass(frozen=True, slots=True)
class Head:
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


def head_of(layer: int, one: Attention, head: int, batch: int) -> Head:
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
        return Head(layer, one.module, head, blocked, queries, keys, weights=whole[head_of])
    assert pooled is not None
    return Head(
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


def labels_of(style: Style, tokens: Sequence[Token], length: int) -> list[str]:
    """`3 ·with` for each position; the index alone where the tokens are not those of this axis."""
    if len(tokens) != length:
        return [""] * length
    return [style.piece(token.piece) for token in tokens]


def head_line(style: Style, data: Head, width: int) -> Text:
    """`layer 0 · head 1  blocks.0.attn`; the module only where `width` has room for it."""
    line = Text(INDENT)
    line.append(f"layer {data.layer}")
    line.append(style.glyph(" · ", ", "), style("dim"))
    line.append(f"head {data.head}", style("axis.H"))
    module = style.text(data.module)
    if module and line.cell_len + 2 + cell_len(module) <= width:
        line.append("  " + module, style("dim"))
    return line


def row_label_width(labels: Sequence[str], queries: int) -> int:
    names = min(LABEL_WIDTH, max((cell_len(label) for label in labels), default=0))
    return len(str(max(0, queries - 1))) + (1 + names if names else 0)


def row_label(style: Style, query: int, label: str, width: int, queries: int) -> Text:
    line = Text()
    line.append(f"{query:>{len(str(max(0, queries - 1)))}}", style("axis.T"))
    if label:
        line.append(" ")
        line.append(clip(label, width - line.cell_len, style))
    line.append(" " * (width - line.cell_len))
    return line


def panels_of(style: Style, panels: Sequence[Lines]) -> Lines:
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
