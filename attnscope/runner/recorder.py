"""The recorder of a script: it never raises, and what it keeps is bounded whatever a forward does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attnscope.ops import KNOWN, NEW, Op, op_of
from attnscope.record import Recorder, Recording

MOST_EVENTS = 20_000
"""Events, sizes and module calls that one recording holds; beyond that it begins anew with what follows."""

_NOTHING: Mapping[str, Any] = {}
_OPAQUE: dict[str, Op] = {}


class ScriptRecorder(Recorder):
    """Notes each call into a `Recording`. An error of the recorder's own is counted and goes no further."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.troubles = 0
        self.restarts = 0
        self.opaque: set[str] = set()
        self._stack: list[int] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # `_note` and `_where` count the frames between them and the source: they are called from here alone.
        before = None
        try:
            op = KNOWN.get(func) or op_of(func)
            if op.careful:
                if op.reenter and self._capture is not None:
                    return self._enter(op, func, args, kwargs or {})
                before = (self._freeze_all(args), self._freeze_named(kwargs))
        except Exception as error:
            if op.reenter:
                raise
            self._trouble(error)
            return func(*args, **kwargs) if kwargs else func(*args)
        try:
            result = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            try:
                self._note_failure(op, args, kwargs or {}, error)
            except Exception as own:
                self._trouble(own)
            raise
        try:
            if isinstance(result, Tensor):
                self._note(op, args, kwargs, result, (result,), before)
            elif op.sizes:
                self._note_size(args)
                return result
            elif isinstance(result, tuple | list):
                tensors = tuple([item for item in result if isinstance(item, Tensor)])
                if tensors:
                    self._note(op, args, kwargs, result, tensors, before)
            elif op.writes:
                written = (kwargs or {}).get("out") if op.out else (args[0] if args else None)
                if isinstance(written, Tensor):
                    self._note(op, args, kwargs, result, (written,), before)
            if len(self.recording.raw) > MOST_EVENTS:
                self._begin_anew()
        except Exception as error:
            self._trouble(error)
        return result

    # -- module calls ----------------------------------------------------------------------------------

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A module's call begins."""
        calls = self.recording.calls
        parent, self.call = self.call, len(calls)
        self._stack.append(self.call)
        try:
            serial = self.serial
            inputs = tuple([serial(x) if isinstance(x, Tensor) else None for x in args])
            named = (
                {k: serial(x) for k, x in kwargs.items() if isinstance(x, Tensor)} if kwargs else _NOTHING
            )
        except Exception as error:
            self._trouble(error)
            inputs, named = (), _NOTHING
        calls.append((module, parent, inputs, named))  # type: ignore[arg-type]
        if len(calls) > MOST_EVENTS or len(self.recording.sizes) > MOST_EVENTS:
            self._begin_anew()

    def leave(self) -> None:
        """The innermost call of a module is over."""
        self._stack.pop()
        self.call = self._stack[-1] if self._stack else -1

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
        try:
            op = _OPAQUE.get(name)
            if op is None:
                op = _OPAQUE[name] = Op(name, memory=NEW, functional=True)
            if error is not None:
                self._note_failure(op, args, kwargs, error)
                return
            results = result if isinstance(result, tuple | list) else (result,)
            tensors = tuple([item for item in results if isinstance(item, Tensor)])
            if tensors:
                self._note(op, args, kwargs, result, tensors, None)
        except Exception as own:
            self._trouble(own)

    # -- bounds ----------------------------------------------------------------------------------------

    def _trouble(self, error: Exception) -> None:
        self.troubles += 1

    def _begin_anew(self) -> None:
        """Forget what was noted but for the module calls that are still running."""
        recording = self.recording
        running = [recording.calls[index][0] for index in self._stack]
        for noted in (recording.raw, recording.sizes, recording.made):
            noted.clear()
        for table in (recording.leaves, self._serials):
            table.clear()
        recording.calls[:] = [(module, index - 1, (), _NOTHING) for index, module in enumerate(running)]
        self._stack[:] = range(len(running))
        self.call = len(running) - 1
        self.restarts += 1
