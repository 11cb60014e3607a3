"""Two modules side by side: the verdict, how the weights were moved, what was run, and both shape traces."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.text import Text

from attnscope.comparison import ComparedSide, Comparison, Pair
from attnscope.files import short_path
from attnscope.folding import Same, fold_layers
from attnscope.render.findings import draw_findings
from attnscope.render.header import config_value
from attnscope.render.layout import (
    INDENT,
    Column,
    blank,
    clip,
    count,
    heading,
    indented,
    notes,
    pad,
    paragraph,
    row,
    rows,
    shape_text,
    spaced,
    table,
)
from attnscope.render.shapes import operation_cell, wrap_shape
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Step

SECTIONS = ("weights", "runs", "shapes")
SIDE_BY_SIDE_FROM = 120
NARROW = 60
"""Below this a table of several columns cannot be read: each row becomes a paragraph."""


def draw_comparison(style: Style, found: Comparison, show: Sequence[str] = SECTIONS) -> Lines:
    """Both modules, the findings or the word `equal`, then the sections that `show` names."""
    parts: list[Lines] = [_sides(style, found)]
    if found.findings:
        parts.append(draw_findings(style, found.findings, summary=False))
    if "weights" in show and (found.moved or found.left or found.neutral):
        parts.append(_weights(style, found))
    if "runs" in show and found.runs:
        parts.append(_runs(style, found))
    if "shapes" in show and found.a.trace is not None and found.b.trace is not None:
        parts.append(_shapes(style, found))
    if found.notes:
        parts.append(notes(style, found.notes))
    return spaced([*parts, _verdict(style, found)])


def _sides(style: Style, found: Comparison) -> Lines:
    lines: Lines = []
    for letter, side in (("A", found.a), ("B", found.b)):
        first = Text().append(letter, style("title")).append("  ")
        lines += paragraph(style, short_path(side.name), first=first, look="title")
        config = [f"{k} {config_value(v)}" for k, v in side.model.config.items()]
        facts = [count(side.parameters, "parameter"), count(side.buffers, "buffer")]
        facts += [count(side.operations, "operation")] if side.operations else []
        mark = style.glyph(" · ", ", ")
        for text in (mark.join(config), mark.join(facts), *(f"guessed: {g}" for g in side.model.guesses)):
            lines += paragraph(style, text, first="   ", look="dim") if text else []
    return lines


def _weights(style: Style, found: Comparison) -> Lines:
    arrow = style.glyph("←", "<-")
    lines = [heading(style, "weights", "of A, moved into B"), blank()]
    if style.width < NARROW:
        for moved in found.moved:
            text = f"{moved.target} {arrow} {_sources(moved.sources)}: {moved.how}"
            lines += paragraph(style, text, first=INDENT)
    else:
        cells = [
            [
                Text(style.text(moved.target), style("strong")),
                Text(arrow, style("dim")),
                Text(style.text(_sources(moved.sources))),
                Text(style.text(moved.how), style("dim")),
            ]
            for moved in found.moved
        ]
        columns = (Column(least=10), Column(least=1), Column(least=10), Column())
        lines += indented(table(style, columns, cells))
    for neutral in found.neutral:
        other = "B" if neutral.side == "A" else "A"
        text = f"{neutral.side}'s {neutral.name} is set to {neutral.value}: {other} has none"
        lines += paragraph(style, text, first=INDENT, look="care")
    for left in found.left:
        text = f"{left.side}'s {left.name} {list(left.shape)} was not moved: {left.why}"
        lines += paragraph(style, text, first=INDENT, look="bad")
    if found.layout:
        lines += paragraph(style, found.layout, first=INDENT, look="dim")
    return lines


def _sources(names: Sequence[str]) -> str:
    """`heads.0 … 3.W_query.weight` for names that a number alone tells apart."""
    stems = {re.sub(r"\d+", "#", name, count=1) for name in names}
    if len(names) > 2 and len(stems) == 1:
        numbers = [re.search(r"\d+", name) for name in names]
        first, last = numbers[0], numbers[-1]
        if first and last:
            return f"{names[0][: first.end()]} … {last[0]}{names[0][first.end() :]}"
    return ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _runs(style: Style, found: Comparison) -> Lines:
    held = sum(run.held is True for run in found.runs)
    lines = [heading(style, "runs", f"{held} of {len(found.runs)} equal"), blank()]
    looks = {True: ("✓", "+", "good"), False: ("✗", "!", "bad"), None: ("·", "-", "dim")}
    cells = []
    for run in found.runs:
        mark, plain, look = looks[run.held]
        said = "" if run.held is False else "dim"
        if style.width < NARROW:
            first = f"{INDENT}{style.glyph(mark, plain)} "
            lines += paragraph(style, f"{run.name}: {run.result}", first=first, look=said)
            continue
        shown = Text(style.glyph(mark, plain), style(look))
        cells.append([shown, Text(style.text(run.name)), Text(style.text(run.result), style(said))])
    return lines + indented(table(style, (Column(least=1), Column(), Column()), cells))


def _shapes(style: Style, found: Comparison) -> Lines:
    assert found.a.trace is not None and found.b.trace is not None
    steps = found.a.trace.steps, found.b.trace.steps
    facts = f"= the same numbers on both sides, up to the order of axes; {_alike(found.pairs)}"
    head = [heading(style, "shapes", facts), blank()]
    if style.width < NARROW:
        lines = head + _paragraphs(style, found, steps)
    elif style.width >= SIDE_BY_SIDE_FROM:
        lines = head + _beside(style, found, steps)
    else:
        lines = head + _below(style, found, steps)
    for letter, side in zip("AB", steps, strict=True):
        for item in fold_layers(side):
            if isinstance(item, Same):
                paths = item.paths[0] if len(item.paths) == 1 else f"{item.paths[0]} … {item.paths[-1]}"
                text = f"{letter}: {paths} took the same {count(item.steps, 'step')} as {item.like}"
                lines += paragraph(style, text, first=INDENT, look="note")
    return lines


def _alike(pairs: Sequence[Pair]) -> str:
    same = sum(pair.same for pair in pairs)
    return f"{same} of {len(pairs)} rows"


def _beside(style: Style, found: Comparison, steps: tuple[Sequence[Step], Sequence[Step]]) -> Lines:
    """A on the left, B on the right, rows with the same numbers on one line."""
    half = (style.width - len(INDENT) - 5) // 2
    drawers = [_Half(style, half, side, own) for side, own in zip((found.a, found.b), steps, strict=True)]
    left, right = (drawer.head(letter) for drawer, letter in zip(drawers, "AB", strict=True))
    lines = [Text(INDENT).append_text(_joined(style, left, " ", "", right, half))]
    lines[0].rstrip()
    last = _last_part(found)
    for pair in found.pairs:
        parts = _parts(found, pair)
        mark = "=" if pair.same else " "
        look = "good"
        if parts:
            mark, look = style.glyph("✗", "!"), "error"
        cells = [
            drawers[0].step(steps[0][pair.a]) if pair.a is not None else [Text("")],
            drawers[1].step(steps[1][pair.b]) if pair.b is not None else [Text("")],
        ]
        for number in range(max(map(len, cells))):
            one, two = (cell[number] if number < len(cell) else Text("") for cell in cells)
            line = Text(INDENT).append_text(
                _joined(style, one, mark if number == 0 else " ", look, two, half)
            )
            line.rstrip()
            lines.append(line)
        if pair is last:
            lines += paragraph(style, _where(found), first=INDENT, look="bad")
    return lines


def _joined(style: Style, left: Text, mark: str, look: str, right: Text, half: int) -> Text:
    line = pad(left, half).copy()
    line.append("  ")
    line.append(mark, style(look) if look else "")
    line.append("  ")
    return line.append_text(right)


def _parts(found: Comparison, pair: Pair) -> bool:
    """Whether this row is where the traces part."""
    at = found.parting
    if at is None:
        return False
    return (pair.a is not None and pair.a == at.a) or (pair.b is not None and pair.b == at.b)


def _last_part(found: Comparison) -> Pair | None:
    """The later of the rows where the traces part."""
    return next((pair for pair in reversed(found.pairs) if _parts(found, pair)), None)


def _where(found: Comparison) -> str:
    assert found.parting is not None
    text = "the traces part here"
    heads = found.parting.heads
    if heads:
        text += f", in head{'s' if len(heads) > 1 else ''} {', '.join(map(str, heads))}"
    return f"{text}: {found.parting.note}" if found.parting.note else text


class _Half:
    """One side's rows in half a screen: line, variable, operation, shape."""

    def __init__(self, style: Style, width: int, side: ComparedSide, steps: Sequence[Step]) -> None:
        self.style = style
        self.width = width
        self.side = side
        self.line = max([4, *(len(str(step.line)) for step in steps)])
        self.variable = min(10, max([3, *(cell_len(style.text(step.variable or "")) for step in steps)]))
        shapes = [self._shape(step).cell_len for step in steps] or [5]
        room = max(20, width - self.line - self.variable - 6)
        self.shape = min(max(shapes), max(12, room * 3 // 5))
        self.op = max(8, room - self.shape)

    def head(self, letter: str) -> Text:
        dim = self.style("dim")
        cells = [Text("line", dim), Text("var", dim), Text(f"{letter}: operation", dim), Text("shape", dim)]
        return row(cells, [self.line, self.variable, self.op, self.shape], right=(0,))

    def step(self, step: Step) -> Lines:
        style = self.style
        operation = operation_cell(style, step, self.op)
        shape = [Text("failed", style("error"))] if step.error is not None else self._shapes(step)
        cells = [
            [Text(str(step.line), style("dim"))],
            [Text(clip(style.text(step.variable or ""), self.variable, style), style("strong"))],
            operation,
            shape,
        ]
        return rows(cells, [self.line, self.variable, self.op, self.shape], right=(0,))

    def _shape(self, step: Step) -> Text:
        if not step.outputs:
            return Text("")
        shape = shape_text(self.style, step.outputs[0])
        if len(step.outputs) > 1:
            times = self.style.glyph("×", "x")
            shape = Text(f"{len(step.outputs)} {times} ").append_text(shape)
        return shape

    def _shapes(self, step: Step) -> Lines:
        return wrap_shape(self._shape(step), self.shape)


def _below(style: Style, found: Comparison, steps: tuple[Sequence[Step], Sequence[Step]]) -> Lines:
    """One column: a row that both have is said once, with its line in A and in B."""
    shown = [s for side in steps for s in side]
    number = max([1, *(len(str(step.line)) for step in shown)])
    number = max(number, 3)
    room = max(20, style.width - len(INDENT) - 2 * number - 8)
    shape_widths = [shape_text(style, s.outputs[0]).cell_len + 4 for s in shown if s.outputs] or [5]
    shape = min(max(shape_widths), max(12, room // 2))
    half = _Half(style, room + number + 16, found.a, [])
    half.shape, half.op = shape, max(8, room - shape)
    dim = style("dim")
    widths = [1, number, number, half.op, shape]
    names = ("", "A", "B", "operation", "shape")
    lines = [Text(INDENT).append_text(row([Text(n, dim) for n in names], widths, right=(1, 2)))]

    def put(mark: Text, a: Step | None, b: Step | None) -> None:
        step = a or b
        assert step is not None
        body = half.step(step)
        for place, line in enumerate(body):
            # The first two columns of the half are replaced: here the line numbers of both sides stand.
            tail = line[half.line + half.variable + 4 :]
            start = Text("")
            if place == 0:
                places = [Text(str(s.line) if s is not None else "", dim) for s in (a, b)]
                start = row([mark, *places, Text("")], [1, number, number, 0], right=(1, 2))
            lines.append(Text(INDENT).append_text(pad(start, 1 + 2 * number + 6)).append_text(tail))
            lines[-1].rstrip()

    last = _last_part(found)
    for pair in found.pairs:
        a = steps[0][pair.a] if pair.a is not None else None
        b = steps[1][pair.b] if pair.b is not None else None
        parts = _parts(found, pair)
        mark = Text("=", style("good")) if pair.same else Text(" ")
        if parts:
            mark = Text(style.glyph("✗", "!"), style("error"))
        alike = a is not None and b is not None and a.op == b.op and _shape_of(a) == _shape_of(b)
        if pair.same and alike and a is not None and b is not None and a.detail == b.detail:
            put(mark, a, b)
        else:
            if a is not None:
                put(mark, a, None)
            if b is not None:
                put(mark if a is None or pair.same else Text(" "), None, b)
        if pair is last:
            lines += paragraph(style, _where(found), first=INDENT, look="bad")
    return lines


def _paragraphs(style: Style, found: Comparison, steps: tuple[Sequence[Step], Sequence[Step]]) -> Lines:
    """Every row as a paragraph: where it stands on both sides, what it does, what comes out."""
    lines: Lines = []
    last = _last_part(found)
    for pair in found.pairs:
        sides = [
            (letter, own[place])
            for letter, own, place in zip("AB", steps, (pair.a, pair.b), strict=True)
            if place is not None
        ]
        if len(sides) == 2 and pair.same and sides[0][1].detail == sides[1][1].detail:
            groups = [sides]
        else:
            groups = [[side] for side in sides]
        for group in groups:
            step = group[0][1]
            mark = style.glyph("✗", "!") if _parts(found, pair) else "=" if pair.same else " "
            where = " ".join(f"{letter}{one.line}" for letter, one in group)
            shape = f" {shape_text(style, step.outputs[0]).plain}" if step.outputs else ""
            text = f"{where} {step.op} {step.detail}{shape}"
            lines += paragraph(style, text, first=f"{INDENT}{mark} ")
        if pair is last:
            lines += paragraph(style, _where(found), first=INDENT, look="bad")
    return lines


def _shape_of(step: Step) -> tuple[int, ...] | None:
    return step.outputs[0].shape if step.outputs else None


def _verdict(style: Style, found: Comparison) -> Lines:
    """One closing line."""
    if found.failed:
        text, look = "different", "error"
        if all(f.code != "AS301" for f in found.findings if f.severity == "error"):
            text = "the same function, other state"
        return [Text(text, style(look))]
    line = Text()
    line.append("equal", style("help"))
    facts = ""
    if found.largest is not None:
        facts = f"largest difference {found.largest:.1e}, {found.tolerance or 0:.0e} is allowed"
        if found.largest == 0:
            facts = "to the last bit"
    given = list(dict.fromkeys(f"{n.side}'s {n.name}" for n in found.neutral))
    if given:
        facts += f", with {' and '.join(given)} set to do nothing"
    return paragraph(style, facts, first=line.append("  "), look="dim")
