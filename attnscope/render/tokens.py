"""Tokens: a table while it is short, a flow of pieces with running numbers when it is long."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from attnscope.render.layout import INDENT, Column, blank, clip, count, heading, indented, table
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Token

TABLE_ROWS = 40
FLOW_HEAD, FLOW_TAIL = 24, 6


def draw_tokens(style: Style, tokens: Sequence[Token], facts: str = "", all_rows: bool = False) -> Lines:
    """Index, id, piece and bytes of each token; with more than 40, pieces alone, wrapped.

    A long flow shows its first and its last rows and says how many tokens stand between, unless `all_rows`.
    """
    said = count(len(tokens), "token")
    lines = [heading(style, "tokens", f"{said}, {facts}" if facts else said), blank()]
    if not tokens:
        return lines[:1]
    if len(tokens) <= TABLE_ROWS:
        return lines + _table(style, tokens)
    return lines + _flow(style, tokens, all_rows)


def _table(style: Style, tokens: Sequence[Token]) -> Lines:
    columns = (
        Column("index", right=True),
        Column("id", right=True),
        Column("piece", whole=True),
        Column("bytes", 11, whole=True),
    )
    cells = [
        [
            Text(str(token.index), style("axis.T")),
            Text(str(token.id)),
            Text(style.piece(token.piece), style("strong")),
            Text(token.raw.hex(" "), style("dim")),
        ]
        for token in tokens
    ]
    return indented(table(style, columns, cells))


def _flow(style: Style, tokens: Sequence[Token], all_rows: bool) -> Lines:
    number_width = max(5, len(str(tokens[-1].index)))
    room = max(8, style.width - len(INDENT) - number_width - 2)
    packed: list[tuple[int, list[str]]] = []
    used = room + 1
    for token in tokens:
        piece = clip(style.piece(token.piece), room, style)
        size = cell_len(piece)
        if used + 1 + size > room:
            packed.append((token.index, [piece]))
            used = size
        else:
            packed[-1][1].append(piece)
            used += 1 + size
    drawn = [_flow_row(style, index, pieces, number_width) for index, pieces in packed]
    if all_rows or len(drawn) <= FLOW_HEAD + FLOW_TAIL + 1:
        return drawn
    skipped = packed[FLOW_HEAD:-FLOW_TAIL]
    hidden = sum(len(pieces) for _, pieces in skipped)
    dots = style.glyph("…", "...")
    gap = Text(f"{INDENT}{dots:>{number_width}}  {count(hidden, 'token')} not shown", style("dim"))
    return [*drawn[:FLOW_HEAD], gap, *drawn[-FLOW_TAIL:]]


def _flow_row(style: Style, index: int, pieces: list[str], number_width: int) -> Text:
    line = Text(INDENT)
    line.append(f"{index:>{number_width}}", style("axis.T"))
    line.append("  ")
    # Two tones in turn show where a piece ends without a glyph between them.
    for number, piece in enumerate(pieces):
        if number:
            line.append(" ")
        line.append(piece, style("strong") if (index + number) % 2 == 0 else style("dim"))
    return line
