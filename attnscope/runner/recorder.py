"""The recorder of a script: what it keeps is bounded whatever a forward does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.ops.calls import NEW, Op
from attnscope.recorder.calls import numbered
from attnscope.recorder.mode import Recorder, _tensors_of
from attnscope.recorder.recording import Recording
from attnscope.recorder.tensors import Ref
from attnscope.sandbox.tensors import is_tensor

MOST_EVENTS = 20_000
"""Events, sizes and module calls that one recording holds; beyond that it begins anew with what follows."""

Left = tuple[int, int]
"""The call around the one that begins, and how often the recording had begun anew."""

_NOTHING: Mapping[str, Any] = {}
_OPAQUE: dict[str, Op] = {}


class ScriptRecorder(Recorder):
    """Notes each call into a `Recording` that begins anew when it has grown too long."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording, most=MOST_EVENTS)
        self.restarts = 0
        self.opaque: set[str] = set()
        self._calls = recording.calls
        self._running = 0

    # -- module calls ----------------------------------------------------------------------------------

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Left:
        """A module's call begins; `leave` wants back what this returns."""
        calls = self._calls
        left = (self.call, self.restarts)
        self.call = len(calls)
        self._running += 1
        inputs: tuple[Ref | None, ...]
        if len(args) == 1 and issubclass(type(args[0]), Tensor):
            number = self._serials.get(id(args[0]))
            inputs = (numbered(self, args[0]) if number is None else number,)
        else:
            inputs = tuple([numbered(self, x) if is_tensor(x) else None for x in args])
        named = _NOTHING
        if kwargs:
            named = {name: numbered(self, x) for name, x in kwargs.items() if is_tensor(x)}
        calls.append((module, left[0], inputs, named))
        if self.call >= MOST_EVENTS or len(self.recording.sizes) > MOST_EVENTS:
            self._begin_anew()
        return left

    def leave(self, left: Left) -> None:
        """The innermost call of a module is over."""
        self._running -= 1
        # After a new beginning the calls that still run have the numbers 0, 1 …
        self.call = left[0] if left[1] == self.restarts else self._running - 1

    def note_opaque(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        error: BaseException | None = None,
    ) -> None:
        """A call whose inside cannot be seen (compiled, scripted, fused) is one step."""
        self.opaque.add(name)
        op = _OPAQUE.get(name)
        if op is None:
            op = _OPAQUE[name] = Op(name, memory=NEW, functional=True)
        with torch._C.DisableTorchFunction():
            if error is not None:
                self._note_failure(op, args, kwargs, error)
                return
            outputs = _tensors_of(result)
            if outputs:
                self._note(op, args, kwargs, result, outputs, None)

    # -- bounds ----------------------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """Forget what was noted but for the module calls that are still running."""
        recording = self.recording
        running = []
        place = self.call
        while place >= 0:
            running.append(self._calls[place][0])
            place = self._calls[place][1]
        for noted in (recording.raw, recording.sizes, recording.made):
            noted.clear()
        for table in (recording.leaves, self._serials):
            table.clear()
        running.reverse()
        self._calls[:] = [(module, index - 1, (), _NOTHING) for index, module in enumerate(running)]
        self.call = len(running) - 1
        self.restarts += 1
