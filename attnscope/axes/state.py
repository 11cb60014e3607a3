"""The names of the axes of every tensor of one recording, and what its rules ask of the source."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from attnscope.axes.dims import Dim, Dims, Space
from attnscope.axes.said import Said, align, is_library
from attnscope.axes.scope import Scope
from attnscope.ops.catalog import FACTORIES
from attnscope.recorder.record import Event, Recording
from attnscope.recorder.tensors import refs_in
from attnscope.source import SourceFile, node_at


class Axes:
    """The dimensions of each tensor by its serial (`of`), and how a step reads an input (`seen_as`)."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.space = Space()
        self.scope = Scope(self.space)
        self.of: dict[int, Dims] = {}
        self.seen_as: dict[tuple[int, int], Dims] = {}  # (event, serial)
        self.index = 0

    def dims(self, ref: int) -> Dims:
        """The dimensions of a tensor; a leaf (a parameter, a buffer) gets fresh ones."""
        known = self.of.get(int(ref))
        if known is None:
            known = self.of[int(ref)] = tuple(Dim(size) for size in self.recording.made[ref][0])
        return known

    def broadcast(self, operands: Sequence[Dims], *, equal: bool = False) -> Dims:
        """The dimensions of an elementwise result; unnamed ones learn their names from their partners.

        `equal`: nothing is broadcast, so axes of size 1 are partners too.
        """
        rank = max((len(dims) for dims in operands), default=0)
        ordered = sorted(operands, key=len, reverse=True)
        result: list[Dim] = []
        for place in range(1, rank + 1):
            here = [dims[-place] for dims in ordered if len(dims) >= place]
            size = max((dim.size for dim in here), default=1)
            if any(dim.size == 0 for dim in here):
                size = 0
            here = [dim for dim in here if dim.size == size]
            chosen = next((d for d in here if d.known and not d.root().mixed), here[0])
            if size > 1 or equal:
                for dim in here:
                    if not dim.known and chosen.known:
                        dim.become(chosen)
            result.append(chosen)
        return tuple(reversed(result))

    def place(self, event: Event) -> tuple[SourceFile, ast.AST] | None:
        """The file and node of an event that the user's own source made."""
        if event.code is None or not event.direct or event.depth:
            return None
        return node_at(event.code, event.lasti)

    def expressions(self, event: Event, count: int, keyword: str = "") -> list[Said]:
        """The source expressions of a call's size arguments, one for each of `count` sizes where known."""
        place = self.place(event)
        if place is None or not isinstance(place[1], ast.Call):
            return [None] * count
        call = place[1]
        named = {item.arg: item.value for item in call.keywords if item.arg}
        args: list[ast.expr] = list(call.args)
        if isinstance(call.func, ast.Attribute) and not is_library(call.func.value):
            pass
        elif event.op.name not in FACTORIES and args:
            args = args[1:]
        if keyword and keyword in named:
            args = [named[keyword]]
        if len(args) == 1 and isinstance(args[0], ast.Name):  # shape = (*x.shape[:-1], -1, head_dim)
            meaning = self.scope.local(place[0], args[0])
            args = [meaning] if isinstance(meaning, ast.Tuple | ast.List) else args
        if len(args) >= 1 and isinstance(args[0], ast.Tuple | ast.List):
            args = list(args[0].elts)
        return align(self._spread(place[0], args), count)

    def _spread(self, file: SourceFile, args: list[ast.expr]) -> list[Said]:
        """`zeros(x.shape)` and `view(*x.shape[:2], -1)`: whole shapes stand for their dimensions."""
        result: list[Said] = []
        for arg in args:
            whole = arg.value if isinstance(arg, ast.Starred) else arg if len(args) == 1 else None
            known = self.scope.dims_of(file, whole) if whole is not None else None
            if isinstance(known, tuple):
                result += known
            else:
                result.append(arg)
        return result

    def factor(self, event: Event, expr: Said, size: int) -> Dim | None:
        """The dimension that the expression of one size names."""
        if isinstance(expr, Dim):
            return expr if expr.size == size else None
        place = self.place(event)
        if place is None or expr is None:
            return None
        return self.scope.dim(place[0], expr, size)

    def letter(self, event: Event, expr: Said) -> str | None:
        """The letter that the expression of one size stands for."""
        if isinstance(expr, Dim):
            return expr.label
        place = self.place(event)
        return self.scope.letter(place[0], expr) if place is not None and expr is not None else None

    def letters(self, event: Event, expr: Said) -> set[str | None]:
        """The letters of the factors of an expression such as `b * self.n_head`."""
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Mult):
            return self.letters(event, expr.left) | self.letters(event, expr.right)
        return {self.letter(event, expr)}

    def heads(self, size: int) -> Dim:
        """An axis that can only be heads: query heads, or, where those are more, key/value heads."""
        known = self.space.find("H", size) or self.space.find("G", size)
        if known is not None:
            return known
        heads = self.space.find("H")
        grouped = heads is not None and heads.size > size and heads.size % size == 0
        return self.space.named("G" if grouped else "H", size)

    def head_axis(self, dim: Dim) -> None:
        """The axis over which queries meet keys is D, unless it has a name that says more."""
        root = dim.root()
        if not root.known:
            dim.become(self.space.named("D", dim.size))
        elif root.part is not None and root.part[0].label == "C":
            root.name = "D"  # a single head's share of the channels


def refs_of(event: Event) -> list[int]:
    return [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]


def argument(event: Event, place: int, name: str, default: Any = None) -> Any:
    if name in event.kwargs:
        return event.kwargs[name]
    return event.args[place] if len(event.args) > place else default


def shape_of(axes: Axes, event: Event, which: int = 0) -> tuple[int, ...]:
    return tuple(axes.recording.made[event.outputs[which]][0])
