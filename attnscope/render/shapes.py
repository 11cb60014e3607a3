"""The shape trace: one row for each tensor operation, with names, sizes, memory and source line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from attnscope.files import module_path, read_line
from attnscope.folding import Same, fold_layers
from attnscope.render.layout import (
    INDENT,
    blank,
    clip,
    clip_left,
    heading,
    paragraph,
    row,
    rows,
    shape_text,
    with_axes,
    wrap,
)
from attnscope.render.terminal import Lines, Style, cell_len
from attnscope.schema import Output, Step, TensorInfo

SOURCE_FROM_WIDTH = 140
NARROW_ROOM = 40


def draw_shapes(style: Style, steps: Sequence[Step], output: Output | None = None) -> Lines:
    """The steps in order, equal layers folded, the failing step marked, the output last."""
    if not steps:
        return [heading(style, "shapes", "no tensor step was recorded")]
    by_index = {step.index: step for step in steps}
    items = fold_layers(steps)
    shown = [item for item in items if isinstance(item, Step)]
    files = list(dict.fromkeys(step.file for step in shown))
    facts = module_path(files[0]) if len(files) == 1 else f"{len(files)} files"
    columns = _Columns(style, shown, by_index)
    lines = [heading(style, "shapes", facts), blank(), columns.head()]
    place: tuple[str, str] | None = ("", files[0])
    last_line: tuple[str, int] | None = None
    for item in items:
        if isinstance(item, Same):
            lines += [blank(), *paragraph(style, _same(style, item), first=INDENT, look="note"), blank()]
            place, last_line = None, None
            continue
        here = (item.module, item.file)
        if here != place:
            named = _place(style, item, len(files) > 1)
            if lines[-1].plain.strip():
                lines.append(blank())
            lines += named
            place, last_line = here, None
        lines += columns.step(item, repeated=last_line == (item.file, item.line))
        last_line = (item.file, item.line)
    if output is not None:
        line = Text(INDENT)
        line.append("output  ", style("dim")).append_text(shape_text(style, output.info))
        line.append(f"  {style.text(output.info.dtype)}", style("dim"))
        lines += [blank(), line]
    starred = [step for step in shown if step.outputs and not step.outputs[0].contiguous]
    if starred:
        text = "not contiguous: in memory the elements do not lie in order without gaps"
        since = next((maker for step in starred if (maker := columns.maker(step)) is not None), None)
        if since is not None:
            text += f" (*{since.line}: since line {since.line})"
        lines += [blank(), *paragraph(style, text, first=f"{INDENT}* ", look="dim")]
    return _single_blanks(lines)


def _single_blanks(lines: Lines) -> Lines:
    kept: Lines = []
    for line in lines:
        if line.plain.strip() or (kept and kept[-1].plain.strip()):
            kept.append(line)
    while kept and not kept[-1].plain.strip():
        kept.pop()
    return kept


def _place(style: Style, step: Step, with_file: bool) -> Lines:
    """A line that says in whose code the next rows stand."""
    look = "strong" if step.module else "dim"
    lines = paragraph(style, step.module or "(the module itself)", first=INDENT, look=look)
    if with_file:
        file = style.text(module_path(step.file))
        lines[-1].append("  " + clip_left(file, style.width - lines[-1].cell_len - 2, style), style("dim"))
    return lines


def _same(style: Style, same: Same) -> str:
    steps = "1 step" if same.steps == 1 else f"{same.steps} steps"
    return f"{_range(same.paths)} took the same {steps} as {same.like}"


def _range(paths: Sequence[str]) -> str:
    """`blocks.1 … blocks.11` for consecutive ones, else `blocks.2, blocks.4`."""
    stem = paths[0].rpartition(".")[0]
    numbers = [int(path.rpartition(".")[2]) for path in paths]
    if len(paths) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{paths[0]} … {paths[-1]}"
    return ", ".join(f"{stem}.{number}" if stem else str(number) for number in numbers)


class _Columns:
    """Widths that suit all rows of one trace, and the drawing of a row in them."""

    def __init__(self, style: Style, steps: Sequence[Step], by_index: Mapping[int, Step]) -> None:
        self.style = style
        self.by_index = by_index
        self.wide = style.width >= SOURCE_FROM_WIDTH
        self.line_width = max(4, *(len(str(step.line)) for step in steps))
        self.variable_width = min(12, max(3, *(cell_len(style.text(step.variable or "")) for step in steps)))
        self.memory_width = max(len("memory"), *(self._memory(step, "").cell_len for step in steps))
        used = len(INDENT) + self.line_width + 2 + self.variable_width + 2 + 2 + 2 + self.memory_width
        stride_width = max((len(_stride(info)) for step in steps for info in step.outputs[:1]), default=2)
        self.stride_width = min(24, max(stride_width, len("stride"))) if self.wide else 0
        if self.wide:
            used += 2 + self.stride_width
        op_natural = max(cell_len(_operation(style, step)) for step in steps)
        shape_natural = max((self._shape(step).cell_len for step in steps), default=5)
        room = style.width - used
        # Too narrow for a table of six columns: the shape goes below the operation.
        self.narrow = room < NARROW_ROOM
        if self.narrow:
            self.source_width = 0
            self.op_width = self.shape_width = max(8, room + 4 + self.memory_width)
            return
        source_natural = (
            max((cell_len(_source(style, step)) for step in steps), default=0) if self.wide else 0
        )
        self.source_width = 0
        if self.wide and source_natural:
            spare = room - min(op_natural, 46) - min(shape_natural, 44) - 2
            self.source_width = max(0, min(source_natural, spare, 64))
            if self.source_width < 16:
                self.source_width = 0
            else:
                room -= self.source_width + 2
        op_natural, shape_natural = max(op_natural, len("operation")), max(shape_natural, len("shape"))
        if op_natural + shape_natural <= room:
            self.op_width, self.shape_width = op_natural, shape_natural
        else:
            # Shapes are what is read across rows: they keep their line, the operation's words wrap.
            least = min(op_natural, max(24, room // 2 - 2))
            self.shape_width = min(shape_natural, room - least)
            self.op_width = room - self.shape_width

    def head(self) -> Text:
        dim = self.style("dim")
        names = ["line", *(["source"] if self.source_width else []), "variable"[: self.variable_width]]
        if self.variable_width < len("variable"):
            names[-1] = "var"
        names.append("operation, shape" if self.narrow else "operation")
        if not self.narrow:
            names += ["shape", "memory", *(["stride"] if self.wide else [])]
        cells = [Text(name, dim) for name in names]
        return Text(INDENT).append_text(row(cells, self._widths(), right=(0,)))

    def _widths(self) -> list[int]:
        widths = [self.line_width]
        if self.source_width:
            widths.append(self.source_width)
        widths += [self.variable_width, self.op_width]
        if not self.narrow:
            widths += [self.shape_width, self.memory_width]
        if self.wide:
            widths.append(self.stride_width)
        return widths

    def step(self, step: Step, repeated: bool) -> Lines:
        style = self.style
        dim = style("dim")
        failed = step.error is not None
        look = dim if step.inner else ""
        cells: list[list[Text]] = [[Text(str(step.line), style("error") if failed else dim)]]
        if self.source_width:
            source = "" if repeated else clip(_source(style, step), self.source_width, style)
            cells.append([Text(source, dim)])
        name = clip(style.text(step.variable or ""), self.variable_width, style)
        cells.append([Text(name, look or style("strong"))])
        cells.append(operation_cell(style, step, self.op_width, look))
        memory = Text("failed", style("error")) if failed else self._memory(step, look)
        if self.narrow:
            shapes = self._shape_cell(step) if step.outputs else [Text("")]
            if shapes[-1].cell_len + 2 + memory.cell_len > self.shape_width:
                shapes.append(Text(""))
            shapes[-1] = Text("  " if shapes[-1] else "").join(
                [part for part in (shapes[-1], memory) if part]
            )
            cells[-1] += shapes
        else:
            cells += [self._shape_cell(step), [memory]]
        if self.wide:
            cells.append([self._stride_cell(step)])
        lines = [Text(INDENT).append_text(line) for line in rows(cells, self._widths(), right=(0,))]
        if step.error is not None:
            mark = Text().append(style.glyph("✗ ", "! "), style("error"))
            lines[0] = mark.append_text(lines[0][len(INDENT) :])
            lines += self._error(step)
        else:
            lines += self._why_noncontiguous(step)
        return lines

    def _shape(self, step: Step) -> Text:
        return Text(", ").join(_outputs(self.style, step.outputs)) if step.outputs else Text("")

    def _shape_cell(self, step: Step) -> list[Text]:
        whole = self._shape(step)
        if step.inner:
            whole = Text(whole.plain, self.style("dim"))
        if whole.cell_len <= self.shape_width:
            return [whole]
        lines: list[Text] = []
        for one in _outputs(self.style, step.outputs):
            lines += wrap_shape(one, self.shape_width)
        return lines

    def _memory(self, step: Step, look: str) -> Text:
        """`view`, `view *` where this step made it non-contiguous, `view *14` where line 14 did."""
        looks = {"view": "", "new": self.style("dim"), "copy": "", "in-place": self.style("care")}
        cell = Text(step.memory, look or looks[step.memory])
        if step.outputs and not step.outputs[0].contiguous:
            maker = self.maker(step)
            cell.append(" *" if maker is None else f" *{maker.line}", look or self.style("care"))
        return cell

    def _stride_cell(self, step: Step) -> Text:
        if not step.outputs:
            return Text("")
        info = step.outputs[0]
        return Text(
            clip(_stride(info), self.stride_width, self.style),
            self.style("dim" if info.contiguous else "care"),
        )

    def _why_noncontiguous(self, step: Step) -> Lines:
        """Where a step puts memory out of order, its stride says how: T ↔ H swaps the strides of T and H."""
        if self.wide or not step.outputs or step.outputs[0].contiguous or self.maker(step) is not None:
            return []
        return self._below(f"not contiguous: stride {_stride(step.outputs[0])}", "care")

    def maker(self, step: Step) -> Step | None:
        """The earlier step that made this one's output non-contiguous, if it was not this one."""
        since = step.noncontiguous_since
        if since is None or since == step.index:
            return None
        return self.by_index.get(since)

    def _error(self, step: Step) -> Lines:
        lines: Lines = []
        if step.inputs:
            given = Text(", ").join(_outputs(self.style, step.inputs))
            first = self._under("inputs ")
            for number, part in enumerate(wrap_shape(given, self.style.width - cell_len(first))):
                line = Text().append(first if number == 0 else " " * len(first), self.style("dim"))
                lines.append(line.append_text(part))
        message = (step.error or "").strip().splitlines() or [""]
        for said in message[:4]:
            lines += paragraph(self.style, said, first=self._under(""), look="error")
        return lines

    def _under(self, word: str) -> str:
        indent = len(INDENT) + self.line_width + 2
        if self.source_width:
            indent += self.source_width + 2
        indent += self.variable_width + 2
        return " " * min(indent, max(2, self.style.width - 24)) + word

    def _below(self, text: str, look: str) -> Lines:
        corner = self.style.glyph("└ ", "\\ ")
        lines = paragraph(self.style, text, first=self._under(corner), look=look)
        lines[0].stylize(self.style(look))
        return lines


def _operation(style: Style, step: Step) -> str:
    detail = style.text(step.detail)
    return f"{style.text(step.op)}  {detail}" if detail else style.text(step.op)


def operation_cell(style: Style, step: Step, width: int, look: str = "") -> Lines:
    """The operation and its arguments, wrapped; with `look` all in that colour."""
    parts = wrap(_operation(style, step), width)
    if len(parts) > 1:
        first, *_ = parts
        tail = _operation(style, step)[len(first) :].strip()
        parts = [first, *("  " + part for part in wrap(tail, width - 2))]
    cell = [Text(part, look) if look else with_axes(style, part) for part in parts]
    word = style.text(step.op)
    if not look and cell[0].plain.startswith(word):
        cell[0] = Text().append(word, style("strong")).append_text(cell[0][len(word) :])
    return cell


def _outputs(style: Style, infos: Sequence[TensorInfo]) -> list[Text]:
    """Shapes, equal neighbours as `3 × [B 1, T 6, C 16]`."""
    out: list[Text] = []
    times = style.glyph("×", "x")
    for info, number in _runs(infos):
        shape = shape_text(style, info)
        out.append(Text(f"{number} {times} ").append_text(shape) if number > 1 else shape)
    if len(out) > 4:
        more = len(out) - 3
        out = [*out[:3], Text(f"{style.glyph('…', '...')} {more} more", style("dim"))]
    return out


def _runs(infos: Iterable[TensorInfo]) -> list[tuple[TensorInfo, int]]:
    runs: list[tuple[TensorInfo, int]] = []
    for info in infos:
        if runs and (runs[-1][0].shape, runs[-1][0].axes) == (info.shape, info.axes):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((info, 1))
    return runs


def wrap_shape(shape: Text, width: int) -> list[Text]:
    """Break behind commas; the axes of one tensor stay readable on every line."""
    if shape.cell_len <= width:
        return [shape]
    breaks = [place + 2 for place in range(len(shape.plain)) if shape.plain.startswith(", ", place)]
    lines: list[Text] = []
    start = 0
    for place in [*breaks, len(shape.plain)]:
        if place - start > width and _last_break(breaks, start, place) > start:
            cut = _last_break(breaks, start, place)
            lines.append(_stripped(shape[start:cut]))
            start = cut
    lines.append(_stripped(shape[start:]))
    return [part for line in lines for part in _cut(line, width)]


def _cut(line: Text, width: int) -> list[Text]:
    """Parts of at most `width` cells: for names of axes that are longer than a column."""
    parts: list[Text] = []
    start, cells = 0, 0
    for place, char in enumerate(line.plain):
        if cells + cell_len(char) > max(2, width):
            parts.append(line[start:place])
            start, cells = place, 0
        cells += cell_len(char)
    return [*parts, line[start:]]


def _last_break(breaks: Sequence[int], start: int, place: int) -> int:
    """The last break before `place` and behind `start`, or `start`."""
    return max((point for point in breaks if start < point < place), default=start)


def _stripped(line: Text) -> Text:
    line.rstrip()
    return line


def _stride(info: TensorInfo) -> str:
    return "(" + ", ".join(map(str, info.stride)) + ")"


def _source(style: Style, step: Step) -> str:
    return style.text(read_line(step.file, step.line).strip().expandtabs(4))
