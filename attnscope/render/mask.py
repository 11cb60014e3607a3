"""A mask as a grid: which query (row) may attend to which key (column)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from attnscope.files import module_path
from attnscope.pooling import pool_blocks, pool_size
from attnscope.render.layout import INDENT, blank, count, headed, heading, key_ruler, paragraph, wrap
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Attention, Mask, MaskOrigin

# Up to this many keys a cell has a column of its own beside it, beyond it two rows share a line.
SPACED = 40


def draw_mask(style: Style, mask: Mask) -> Lines:
    """A mask of `attnscope mask`: the grid, the counts, and the lines of torch that build it."""
    queries, keys = mask.allowed.shape
    said = [
        _kind(mask),
        f"{count(queries, 'query', 'queries')} × {count(keys, 'key')}",
    ]
    lines = [*headed(style, "mask", f"{', '.join(said)}, {counts(mask.allowed)}"), blank()]
    lines += grid(style, mask.allowed)
    if mask.torch_lines:
        lines += [blank(), heading(style, "torch"), blank()]
        width = max(map(len, mask.torch_lines))
        for convention, code in mask.torch_lines.items():
            lines += _code(style, convention, width, code)
    return lines


def draw_attention_masks(
    style: Style, attention: Sequence[Attention], layers: Sequence[int] | None = None
) -> Lines:
    """The masks that the attentions of a trace applied; equal ones are drawn once, with all their places.

    `layers` picks attentions by their number.
    """
    picked = [(number, one) for number, one in enumerate(attention) if layers is None or number in layers]
    if not picked:
        return []
    groups: list[tuple[Attention, list[int]]] = []
    for number, one in picked:
        for other, numbers in groups:
            if _same(one, other):
                numbers.append(number)
                break
        else:
            groups.append((one, [number]))
    lines = [heading(style, "mask", f"{len(groups)} different ones")] if len(groups) > 1 else []
    for one, numbers in groups:
        said = _summary(one)
        if len(groups) > 1:
            lines += [blank(), *paragraph(style, _layers(style, numbers, one), first=INDENT, look="strong")]
            lines += paragraph(style, said, first=INDENT, look="dim")
        else:
            if len(numbers) > 1:
                said += f", the same in {_layers(style, numbers, one)}"
            lines += headed(style, "mask", said)
        if one.mask is not None and not (one.mask.all() and one.mask_origin.kind == "none"):
            lines += [blank(), *grid(style, one.mask[0])]
            if one.mask.shape[0] > 1:
                equal = bool((one.mask == one.mask[:1]).all())
                text = "the same in all" if equal else "batch entry 0; others differ, of"
                text += f" {one.mask.shape[0]} batch entries"
                lines += paragraph(style, text, first=INDENT, look="dim")
    return lines


def counts(allowed: NDArray[np.bool_]) -> str:
    return f"{int(np.count_nonzero(allowed)):,} of {allowed.size:,} allowed"


def _summary(one: Attention) -> str:
    if one.mask is None:
        return f"not kept; {origin(one.mask_origin)}"
    if one.mask_origin.kind == "none" and one.mask.all():
        return f"none: each of {one.shape[2]:,} queries may attend to all {one.shape[3]:,} keys"
    return f"{counts(one.mask[0])}, {origin(one.mask_origin)}"


def origin(where: MaskOrigin) -> str:
    """`buffer mask`, `argument attn_mask`, `made at line 30 of model.py`."""
    words = {
        "buffer": "buffer",
        "parameter": "parameter",
        "attribute": "attribute",
        "argument": "argument",
        "is_causal": "is_causal=True",
        "made": "made",
        "none": "no mask was applied",
    }
    text = words[where.kind]
    if where.name:
        text += f" {where.name}" if where.kind != "is_causal" else f" of {where.name}"
    if where.line is not None:
        text += f" at line {where.line}" if where.kind == "made" else f", line {where.line}"
        if where.file:
            text += f" of {module_path(where.file)}"
    return text


def _same(one: Attention, other: Attention) -> bool:
    a, b = one.mask_origin, other.mask_origin
    # Each layer has its own buffer: the name's last part is what two layers share.
    if (a.kind, (a.name or "").rpartition(".")[2], a.line) != (
        b.kind,
        (b.name or "").rpartition(".")[2],
        b.line,
    ):
        return False
    if one.mask is None or other.mask is None:
        return one.mask is other.mask
    return one.mask.shape == other.mask.shape and bool(np.array_equal(one.mask, other.mask))


def _layers(style: Style, numbers: Sequence[int], one: Attention) -> str:
    """`layer 3  blocks.3.attn`, `layers 0, 2, 4–11`"""
    if len(numbers) == 1:
        return f"layer {numbers[0]}  {one.module}" if one.module else f"layer {numbers[0]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    dash = style.glyph("–", "-")
    return "layers " + ", ".join(f"{run[0]}{dash}{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def grid(style: Style, allowed: NDArray[np.bool_]) -> Lines:
    """The picture of one mask [queries, keys], at most `style.width` wide; pooled, and the factor said.

    Up to 40 keys: a mark with a space per cell. More: two rows of cells per line in half blocks, one column a
    cell (without Unicode one row per line). More than fit: the share of allowed cells in each block.
    """
    queries, keys = allowed.shape
    label = max(len(str(queries - 1)), 1)
    room = max(4, style.width - len(INDENT) - len("query") - 1 - label - 3)
    if keys * 2 <= min(room, SPACED * 2) and queries <= 64:
        return _spaced(style, allowed, label)
    if style.unicode and keys <= room and queries <= room:
        return _halves(style, allowed, label)
    if keys <= room and queries <= 64:
        return _dense(style, allowed, label)
    return _pooled(style, allowed, room, label)


def _ruler(style: Style, label: int, cells: int, step: int, each: int) -> Lines:
    return key_ruler(style, len(INDENT) + len("query") + 1 + label + 2, cells, step, each, 1)


def _margin(style: Style, first: bool, label: int, word: str) -> Text:
    line = Text(INDENT)
    line.append("query" if first else " " * len("query"), style("axis.T"))
    line.append(" ")
    line.append(f"{word:>{label}}", style("axis.T"))
    line.append("  ")
    return line


def _spaced(style: Style, allowed: NDArray[np.bool_], label: int) -> Lines:
    keys = allowed.shape[1]
    each = max(2, len(str(keys - 1)) + 1) if keys <= 12 else 2
    lines = _ruler(style, label, keys, 1, each)
    on, off = style.glyph("■", "#"), style.glyph("·", ".")
    for number, row in enumerate(allowed.tolist()):
        line = _margin(style, number == 0, label, str(number))
        for place, cell in enumerate(row):
            if place:
                line.append(" " * (each - 1))
            line.append(on if cell else off, style("allowed" if cell else "dim"))
        lines.append(line)
    return lines


def _halves(style: Style, allowed: NDArray[np.bool_], label: int) -> Lines:
    queries, keys = allowed.shape
    lines = _ruler(style, label, keys, 1, 1)
    look = style("allowed")
    edge = style.glyph("│", "|")
    glyphs = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}
    for top in range(0, queries, 2):
        upper = allowed[top].tolist()
        lower = allowed[top + 1].tolist() if top + 1 < queries else [False] * keys
        line = _margin(style, top == 0, label, str(top) if top % 10 == 0 else "")
        line.append("".join(glyphs[pair] for pair in zip(upper, lower, strict=True)), look)
        line.append(edge, style("dim"))
        lines.append(line)
    return [*lines, *_note(style, "filled: allowed; two queries share a line", label)]


def _dense(style: Style, allowed: NDArray[np.bool_], label: int) -> Lines:
    lines = _ruler(style, label, allowed.shape[1], 1, 1)
    on, off = style.glyph("█", "#"), style.glyph("·", ".")
    for number, row in enumerate(allowed.tolist()):
        line = _margin(style, number == 0, label, str(number) if number % 5 == 0 else "")
        line.append("".join(on if cell else off for cell in row), style("allowed"))
        lines.append(line)
    return lines


def _pooled(style: Style, allowed: NDArray[np.bool_], room: int, label: int) -> Lines:
    queries, keys = allowed.shape
    each = 2
    cells = max(1, min(room // each, 64))
    down, across = pool_size(queries, cells), pool_size(keys, cells)
    share = pool_blocks(allowed, down, across)
    widths = np.minimum(across, keys - np.arange(share.shape[1]) * across)
    share = share / widths
    lines = _ruler(style, label, share.shape[1], across, each)
    ramp = style.glyph("·░▒▓█", ".:=*#")
    look = style("allowed")
    for number, row in enumerate(share.tolist()):
        line = _margin(style, number == 0, label, str(number * down) if number % 4 == 0 else "")
        for value in row:
            # Only a block with no allowed cell at all, and only a block with nothing else, get the ends.
            place = 0 if value == 0 else 4 if value >= 1 - 1e-6 else 1 + min(2, int(value * 3))
            line.append(ramp[place] * each if place else ramp[0] + " ", look if place else style("dim"))
        line.rstrip()
        lines.append(line)
    cell = f"{count(down, 'query', 'queries')} × {count(across, 'key')}"
    scale = f"{ramp[0]} none  {ramp[1]} <1/3  {ramp[2]} <2/3  {ramp[3]} more  {ramp[4]} all allowed"
    return [
        *lines,
        *_note(style, f"one cell is {cell}: the share that is allowed", label),
        *_note(style, scale, label),
    ]


def _note(style: Style, text: str, label: int) -> Lines:
    return paragraph(style, text, first=" " * (len(INDENT) + len("query") + 1 + label + 2), look="dim")


def _kind(mask: Mask) -> str:
    more = [
        f"{name} {value}"
        for name, value in mask.parameters.items()
        if name != "length" and name != "queries" and (name, value) != ("offset", 0)
    ]
    return " ".join([mask.kind, *more])


def _code(style: Style, convention: str, width: int, code: str) -> Lines:
    """One line of code behind its name, wrapped between tokens only."""
    first = Text(INDENT)
    first.append(convention.ljust(width), style("dim"))
    first.append("  ")
    room = style.width - first.cell_len
    if room < 24:
        lines = [first]
        first, room = Text(INDENT * 2), style.width - 4
    else:
        lines = []
    indent = " " * first.cell_len
    for number, part in enumerate(wrap_code(style.text(code), room)):
        line = first if number == 0 else Text(indent)
        line.append(part)
        lines.append(line)
    return lines


def wrap_code(code: str, width: int) -> list[str]:
    """Break code behind commas, operators and opening brackets, never inside a name or a number."""
    if cell_len(code) <= width:
        return [code]
    pieces: list[str] = []
    current = ""
    for char in code:
        current += char
        if char in ",(&|[ ":
            pieces.append(current)
            current = ""
    pieces.append(current)
    lines, line = [], ""
    for piece in pieces:
        if line and cell_len(line) + cell_len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = "    " + piece.lstrip()
        else:
            line += piece
    lines.append(line.rstrip())
    # A name longer than the width cannot stay whole and inside the width: then the width is what counts.
    return [part for text in lines for part in (wrap(text, width) if cell_len(text) > width else [text])]
