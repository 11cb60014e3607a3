"""A chain of views: the numbers of each step in logical order, what a row holds, how memory is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from attnscope.render.layout import INDENT, blank, clip, headed, paragraph
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Arrangement, ReshapeStep, Reshaping

MOST_ENTRIES, MOST_ROWS = 4, 8
EDGE = 2
RUNS = 12
PARTS = 6
_LABEL = 34


@dataclass(frozen=True, slots=True)
class _Source:
    """What an element's number says of it: its batch entry, token and channel in the input."""

    shape: tuple[int, ...]
    width: int  # channels of one head, which share a colour; 0: rows of the input do

    def held(self, numbers: NDArray[np.int64]) -> str:
        """`token 0, channels 0–7` of some elements."""
        if len(self.shape) == 1:
            return f"elements {_ranges(numbers)}"
        rows, channels = np.divmod(numbers, self.shape[-1])
        entries, tokens = np.divmod(rows, self.shape[-2])
        said = [_named("token", tokens), _named("channel", channels)]
        if int(np.prod(self.shape[:-2])) > 1:
            said.insert(0, _named("entry", entries, "entries"))
        return ", ".join(said)

    def part(self, number: int) -> int:
        """Which colour an element has: that of its head."""
        if self.width:
            return number % self.shape[-1] // self.width
        return number // self.shape[-1] if len(self.shape) > 1 else number


def draw_reshaping(style: Style, made: Reshaping, heads: int | None = None) -> Lines:
    """Each step of a chain: shape, strides, whether memory is shared, the numbers, what each row holds."""
    source = _Source(made.shape, _head_width(made, heads))
    facts = f"{_shape(made.shape)}, elements numbered as they lie in memory"
    if source.width:
        number = made.shape[-1] // source.width
        facts += f"; colours: {number} heads of {source.width} channels" if style.color else ""
    lines = headed(style, "reshape", facts)
    lines += [blank(), *_head(style, "x", "x", made.input, ""), *_grid(style, made.input, source)]
    previous = made.input
    for number, step in enumerate(made.steps, 1):
        lines.append(blank())
        lines += _step(style, number, step, previous, source)
        if step.outputs:
            previous = step.outputs[0]
    return lines


def _step(style: Style, number: int, step: ReshapeStep, before: Arrangement, source: _Source) -> Lines:
    if step.error is not None:
        line = Text(f"{number} ").append(style.text(clip(step.text, style.width - 4, style)), style("strong"))
        refused = [line, *paragraph(style, f"cannot be done: {step.error}", first=INDENT, look="bad")]
        if step.cures:
            refused += paragraph(style, "would work: " + " or ".join(step.cures), first=INDENT, look="help")
        return refused
    lines: Lines = []
    several = len(step.outputs) > 1
    shown = _picked(len(step.outputs), MOST_ENTRIES)
    for place in shown:
        if place is None:
            lines += paragraph(
                style, f"… {len(step.outputs) - len(shown) + 1} more parts", first=INDENT, look="dim"
            )
            continue
        one = step.outputs[place]
        title = step.text + (f"[{place}]" if several else "")
        if several and place:
            lines.append(blank())
        lines += _head(style, f"{number}", title, one, step.memory)
        lines += _memory(style, step, one, before)
        lines += _grid(style, one, source)
        lines += _entries(style, one, source)
    return lines


def _head(style: Style, number: str, title: str, one: Arrangement, memory: str) -> Lines:
    said = {"view": "a view", "copy": "a copy", "same": "nothing to do", "": ""}[memory]
    order = "contiguous" if one.contiguous else "not contiguous"
    facts = ", ".join(part for part in (f"strides {_tuple(one.strides)}", said, order) if part)
    line = Text()
    if number != title:
        line.append(f"{number} ")
    room = style.width - cell_len(number) - len(_shape(one.shape)) - len(facts) - 6
    if room < len(title) or room < 12:
        line.append(style.text(clip(title, style.width - 4, style)), style("strong"))
        return [line, *paragraph(style, f"{_shape(one.shape)}  {facts}", first=INDENT, look="dim")]
    line.append(style.text(title), style("strong"))
    line.append(f"  {_shape(one.shape)}  ")
    line.append(facts, style("dim"))
    return [line]


def _memory(style: Style, step: ReshapeStep, one: Arrangement, before: Arrangement) -> Lines:
    """How the logical order walks through memory, or what a copy wrote there."""
    if step.memory == "copy":
        values = one.memory[: RUNS + 1]
        more = f" {style.glyph('…', '...')}" if len(one.memory) > len(values) else ""
        text = f"memory anew: {' '.join(map(str, values))}{more}"
    else:
        if one.contiguous and one.memory.size == one.numbers.size:
            return []
        text = f"reads memory at {_runs(_places(one), style)}"
    return paragraph(style, text, first=INDENT, look="dim")


def _places(one: Arrangement) -> NDArray[np.int64]:
    """The place in memory of each element, in logical order."""
    places = np.full(one.shape, one.offset, dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(one.shape, one.strides, strict=True)):
        along = [1] * len(one.shape)
        along[axis] = size
        places += (np.arange(size) * stride).reshape(along)
    return places.reshape(-1)


def _runs(places: NDArray[np.int64], style: Style) -> str:
    """`0–7, 16–23, …`: stretches of neighbouring places."""
    edges = np.flatnonzero(np.diff(places) != 1) + 1
    stretches = np.split(places, edges[:RUNS])
    if len(edges) > RUNS:
        stretches = stretches[:RUNS]
    said = [str(s[0]) if len(s) == 1 else f"{s[0]}{style.glyph('–', '-')}{s[-1]}" for s in stretches]
    return ", ".join(said) + (f", {style.glyph('…', '...')}" if len(edges) > RUNS else "")


def _grid(style: Style, one: Arrangement, source: _Source) -> Lines:
    """The numbers as matrices of the last two axes, one for each index of those before."""
    numbers = one.numbers
    if numbers.ndim < 2:
        numbers = numbers.reshape(1, -1)
    lead, columns = numbers.shape[:-2], numbers.shape[-1]
    label = cell_len(f"[{', '.join(str(size - 1) for size in lead)}]") if lead else 0
    cell = len(str(int(one.memory.max()))) if one.memory.size else 1
    room = style.width - len(INDENT) - (label + 1 if lead else 0)
    with_label = room - columns * (cell + 1) >= 16
    space = room - (_LABEL if not with_label and room > 2 * _LABEL else 0)
    fits = columns if columns * (cell + 1) <= space else max(3, (space - 2) // (cell + 1))
    shown = _picked(columns, max(fits, 3))
    lines: Lines = []
    for index in _leading(lead):
        if index is None:
            lines.append(Text(INDENT + style.glyph("…", "..."), style("dim")))
            continue
        name = f"[{', '.join(map(str, index))}]" if index else ""
        for row in _picked(numbers.shape[-2], MOST_ROWS):
            line = Text(INDENT)
            if lead:
                line.append(f"{name:<{label}} ", style("dim"))
                name = ""
            if row is None:
                line.append(style.glyph("…", "..."), style("dim"))
                lines.append(line)
                continue
            values = numbers[(*index, row)]
            _numbers(style, line, values, shown, cell, source)
            held = source.held(values)
            if style.width - line.cell_len - 2 >= 8:
                line.append(
                    "  " + clip(style.text(held), style.width - line.cell_len - 2, style), style("dim")
                )
            lines.append(line)
    return lines


def _numbers(
    style: Style,
    line: Text,
    values: NDArray[np.int64],
    shown: Sequence[int | None],
    cell: int,
    source: _Source,
) -> None:
    for column in shown:
        if column is None:
            line.append(style.glyph(" …", " ~"), style("dim"))
            continue
        number = int(values[column])
        line.append(f" {number:>{cell}}", style(f"part.{source.part(number) % PARTS}"))


def _entries(style: Style, one: Arrangement, source: _Source) -> Lines:
    """What each entry of the first axis holds: whole tokens of one head, or a mixture."""
    if one.numbers.ndim < 3 or len(source.shape) < 2:
        return []
    first = one.numbers[0].reshape(-1)
    return paragraph(style, f"[0] holds {source.held(first)}", first=INDENT)


def _leading(sizes: Sequence[int]) -> Iterator[tuple[int, ...] | None]:
    """Indices of the leading axes, with None once where some are left out."""
    if not sizes:
        yield ()
        return
    left_out = False
    for index in product(*(_picked(size, MOST_ENTRIES if len(sizes) == 1 else 2) for size in sizes)):
        if any(place is None for place in index):
            if not left_out:
                yield None
            left_out = True
            continue
        left_out = False
        yield tuple(place for place in index if place is not None)


def _picked(size: int, most: int) -> list[int | None]:
    """All indices, or the first and the last ones with None between."""
    if size <= most:
        return list(range(size))
    tail = 1 if most <= 4 else EDGE
    return [*range(most - tail - 1), None, *range(size - tail, size)]


def _head_width(made: Reshaping, heads: int | None) -> int:
    """Channels of one head: those asked for, else the last axis of the first step that cuts channels."""
    channels = made.shape[-1]
    if heads is not None:
        return channels // heads
    for step in made.steps:
        for one in step.outputs:
            last = one.shape[-1] if one.shape else 0
            if len(one.shape) > len(made.shape) and 1 < last < channels and channels % last == 0:
                return last
    for step in made.steps:
        for one in step.outputs:
            for size in one.shape[1:]:
                if len(one.shape) > len(made.shape) and 1 < size < channels and channels % size == 0:
                    return size
    return 0


def _named(word: str, places: NDArray[np.int64], several: str = "") -> str:
    text = _ranges(places)
    return f"{word} {text}" if text.isdigit() else f"{several or word + 's'} {text}"


def _ranges(places: NDArray[np.int64]) -> str:
    """`0–3`, `0, 4, 8`, `0 … 31` of the different places among these."""
    found = np.unique(places)
    if len(found) == 1:
        return str(found[0])
    if int(found[-1] - found[0]) == len(found) - 1:
        return f"{found[0]}–{found[-1]}"
    if len(found) <= 4:
        return ", ".join(map(str, found))
    return f"{found[0]}, {found[1]} … {found[-1]}"


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _tuple(strides: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, strides)) + ")"
