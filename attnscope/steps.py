"""From what was recorded to the rows that are shown: one `Step` for each operation that the source calls."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from typing import Any

from attnscope.axes.details import Words, is_library
from attnscope.axes.dims import Dims, labels
from attnscope.axes.naming import named
from attnscope.recorder.record import Event, Recording
from attnscope.recorder.tensors import refs_in
from attnscope.schema import Span, Step, TensorInfo
from attnscope.source import assigned, node_at, receiver, span_of

# Calls that change nothing that a reader of shapes would look for.
_SILENT = frozenset({"requires_grad_", "retain_grad", "register_hook", "backward", "is_leaf"})


class Steps:
    """The rows of one recording, and which of its events became which row."""

    def __init__(self, recording: Recording, *, inner: bool = False) -> None:
        self.recording = recording
        self.axes = named(recording)
        self.of_event: dict[int, int] = {}
        self.rows: list[Step] = []
        self._words = Words(self.axes)
        self._since: dict[int, int] = {}
        self._turns: dict[tuple[int, int, int], int] = {}
        self._whole: dict[tuple[int, int, int], tuple[int, int]] = {}  # the last library call there, its row
        for index, event in enumerate(recording.events):
            shown = self._shown(event)
            self._follow_strides(event, len(self.rows) if shown else max(len(self.rows) - 1, 0))
            if shown or inner:
                self.of_event[index] = len(self.rows)
                self.rows.append(self._row(index, event, not shown))

    # -- what is shown -----------------------------------------------------------------------------------

    def _shown(self, event: Event) -> bool:
        if event.op.name in _SILENT or event.depth:
            return False
        if event.direct and event.code is not None:
            return True
        if event.op.functional:
            return True
        # `nn.Flatten` and its like call a method of the tensor; a layer with parts of its own does more.
        if event.call < 0:
            return False
        module = self.recording.calls[event.call][0]
        has_parts = bool(vars(module).get("_modules") or vars(module).get("_buffers"))
        reads = next(refs_in(event.args), None) is not None
        return is_library(module) and not has_parts and event.memory != "in-place" and reads

    def _follow_strides(self, event: Event, row: int) -> None:
        """Remember which row made a tensor non-contiguous; views of it inherit the blame."""
        for serial in event.outputs:
            if contiguous(self.recording.made[serial]):
                continue
            blamed = None
            if event.memory in ("view", "in-place"):
                blamed = next((self._since[ref] for ref in refs_in(event.args) if ref in self._since), None)
            self._since[serial] = row if blamed is None else blamed

    # -- one row -----------------------------------------------------------------------------------------

    def _row(self, index: int, event: Event, inner: bool) -> Step:
        outputs = tuple(self.info(serial, self.axes.of[serial]) for serial in event.outputs)
        refs = [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]
        inputs = tuple(
            self.info(ref, dims) for ref, dims in zip(refs, self._words.inputs(index, event), strict=True)
        )
        since = self._since.get(event.outputs[0]) if event.outputs else None
        memory: Any = event.memory
        return Step(
            index=len(self.rows),
            module=self.owner(event.call),
            op=event.op.name,
            detail=self._words.explain(index, event),
            variable=None if inner else self._variable(event),
            span=self._span(event),
            inputs=inputs,
            outputs=outputs,
            memory=memory,
            noncontiguous_since=since,
            inner=inner,
            error=event.error,
            values=event.values,
        )

    def info(self, serial: int, dims: Dims) -> TensorInfo:
        """What is shown of a tensor."""
        shape, stride, dtype, device = self.recording.made[serial]
        return TensorInfo(
            shape=tuple(shape),
            axes=labels(dims),
            dtype=str(dtype).removeprefix("torch."),
            stride=tuple(stride),
            contiguous=contiguous(self.recording.made[serial]),
            device=str(device),
        )

    def owner(self, call: int) -> str:
        """The path of the module in whose own code the call stands; PyTorch's layers belong to the caller."""
        current = call
        while current >= 0:
            module, parent, *_ = self.recording.calls[current]
            if not is_library(module):
                return self.recording.path_of(current)
            current = parent
        return ""

    def _variable(self, event: Event) -> str | None:
        if event.code is None or (event.error is not None and event.op.name == ""):
            return None
        place = node_at(event.code, event.lasti)
        if place is None:
            return None
        file, node = place
        if event.op.name == "getitem" and isinstance(getattr(node, "ctx", None), ast.Store):
            return None  # `x[0] += 1` reads before it writes
        names = assigned(file, node)
        if not names.names and event.op.writes and isinstance(file.parents.get(node), ast.Expr):
            return receiver(node)
        call, top = self._calls(event.call)
        key = (id(event.code), event.lasti, call)
        before = self._whole.get(key)
        if before is not None and before[0] == top >= 0:
            # One call of a layer that takes several steps: the last one is what the line assigns.
            self.rows[before[1]] = replace(self.rows[before[1]], variable=None)
            turn = self._turns[key] - 1
        else:
            turn = self._turns.get(key, 0)
            self._turns[key] = turn + 1
        self._whole[key] = (top, len(self.rows))
        name = names.at(turn)
        # A tensor that is unpacked is not what the names get: the `unbind` that follows makes that.
        unpacked = name is not None and ", " in name and len(event.outputs) == 1 and event.op.name != "unbind"
        return None if unpacked else name

    def _calls(self, call: int) -> tuple[int, int]:
        """The innermost call of a user's module, and the outermost one of PyTorch's within it (or -1)."""
        top = -1
        while call >= 0 and is_library(self.recording.calls[call][0]):
            top, call = call, self.recording.calls[call][1]
        return call, top

    def _span(self, event: Event) -> Span:
        if event.code is not None:
            return span_of(event.code, event.lasti)
        module = self.recording.calls[event.call][0] if event.call >= 0 else self.recording.root
        try:
            code = type(module).forward.__code__
        except AttributeError:
            return Span(inspect.getfile(type(module)), 1, 1, 1, 1)
        return Span(code.co_filename, code.co_firstlineno, 1, code.co_firstlineno, 1)


def contiguous(made: tuple[Any, ...]) -> bool:
    """Whether a recorded tensor lies in memory in the order of its axes."""
    shape, stride = made[0], made[1]
    expected = 1
    if 0 in shape:
        return True
    for size, step in zip(reversed(shape), reversed(stride), strict=False):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


def build_steps(recording: Recording, *, inner: bool = False) -> list[Step]:
    """One row for each tensor operation that the module's own source called, in order.

    With `inner`, PyTorch's own steps are rows too (`Step.inner`).
    """
    return Steps(recording, inner=inner).rows
