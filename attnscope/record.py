"""The recorder: every tensor operation of one run, as the source called it, without holding a tensor.

A `TorchFunctionMode` sees each call at the level of the source. What it notes while the module runs is
raw (function, instruction, shapes, strides); naming and explaining come later, in `attnscope.axes`, so
that a run is slowed as little as possible. Tensors are known by serial numbers: a tensor gets a new one
each time an operation makes or rewrites it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnscope.capture import Capture
from attnscope.ops import KNOWN, VIEW, Op, op_of
from attnscope.preserve import Guard, preserved, walk
from attnscope.tensors import Ref, storage_of, strides_of, tensors_in, to_numpy

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LAYERS = _HERE + "layers" + os.sep

_USER, _DISPATCH, _INNER, _EDGE = 0, 1, 2, 3
CODES: dict[int, tuple[CodeType, int]] = {}

# These files of PyTorch's stand between a call in the user's source and the mode without adding a step.
_DISPATCHERS = tuple(
    _TORCH + name for name in ("overrides.py", "_tensor.py", "functional.py", "nn/functional.py", "_ops.py")
)

# Frames that carry these names are the interpreter's or a library's plumbing, never the user's own code.
_PLUMBING = ("<frozen ", os.sep + "contextlib.py", os.sep + "functools.py", os.sep + "einops" + os.sep)


# What is kept of a tensor, no storage and no values: shape, stride, dtype, device. A bare tuple, since one
# is made for each tensor of a run.
Made = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]


class Event(NamedTuple):
    """One call that the recorder saw.

    `code` and `lasti` are the instruction in the innermost frame of the user's; `direct` is False when
    PyTorch's own code made the call. `outputs` are serials; `memory` is one of `view`, `new`, `in-place`.
    """

    op: Op
    code: CodeType | None
    lasti: int
    direct: bool
    call: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[int, ...]
    memory: str
    depth: int
    error: str | None = None
    values: tuple[Any, ...] | None = None


# One call of a module: which, from inside which other call (-1: none), the serials of its positional tensor
# arguments (None for others) and of its keyword ones.
Call = tuple[nn.Module, int, tuple[Ref | None, ...], Mapping[str, Ref]]


@dataclass
class Recording:
    """Everything noted during one run. `result` is what the module returned, `error` what it raised."""

    root: nn.Module
    raw: list[tuple[Any, ...]] = field(default_factory=list)
    sizes: list[tuple[CodeType, int, int, Any]] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    leaves: dict[int, int] = field(default_factory=dict)
    arguments: list[tuple[str, int]] = field(default_factory=list)
    input_axes: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    capture: Capture | None = None
    result: Any = None
    result_serial: int | None = None
    error: BaseException | None = None

    @cached_property
    def events(self) -> list[Event]:
        """The calls in the order in which they returned."""
        return [Event(*raw) for raw in self.raw]

    @cached_property
    def paths(self) -> dict[int, str]:
        """The dotted path of each registered module, by id."""
        return {id(module): path for path, module in walk(self.root)}

    @cached_property
    def owned(self) -> dict[int, tuple[str, str]]:
        """By id: whether a leaf is a `buffer`, a `parameter` or an `attribute`, and its dotted name."""
        owned: dict[int, tuple[str, str]] = {}
        for path, module in walk(self.root):
            state = vars(module)
            tables = (("buffer", "_buffers"), ("parameter", "_parameters"))
            named = [(kind, state.get(table) or {}) for kind, table in tables]
            for kind, values in [*named, ("attribute", state)]:
                for name, value in list(values.items()):
                    if isinstance(value, Tensor):
                        owned.setdefault(id(value), (kind, f"{path}.{name}" if path else name))
        return owned

    def path_of(self, call: int) -> str:
        """The dotted path of a call's module; the class in angle brackets if it is not registered."""
        if call < 0:
            return ""
        module = self.calls[call][0]
        known = self.paths.get(id(module))
        return known if known is not None else f"<{type(module).__name__}>"


class Recorder(TorchFunctionMode):
    """Notes each call into a `Recording`. Enter it around the module's call, in the thread that runs it."""

    def __init__(
        self,
        recording: Recording,
        *,
        inner: bool = False,
        values: bool = False,
        on_output: Callable[[Event, Any], None] | None = None,
    ) -> None:
        super().__init__()
        self.recording = recording
        self.call = -1
        self.guard: Guard | None = None
        self._inner = inner
        self._values = values
        self._on_output = on_output
        self._serials: dict[int, int] = {}
        self._depth = 0
        self._events = recording.raw.append
        self._made = recording.made
        self._capture = recording.capture

    # -- the hot path: every line here is paid for at each tensor operation ------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        op = KNOWN.get(func) or op_of(func)
        if op.careful:
            return self._careful(op, func, args, kwargs or {})
        try:
            result = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            self._note_failure(op, args, kwargs or {}, error)
            raise
        if isinstance(result, Tensor):
            self._note(op, args, kwargs, result, (result,), None)
        elif op.sizes:
            self._note_size(args)
        elif isinstance(result, tuple | list):
            tensors = tuple([item for item in result if isinstance(item, Tensor)])
            if tensors:
                self._note(op, args, kwargs, result, tensors, None)
        return result

    def _note(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        result: Any,
        outputs: tuple[Tensor, ...],
        before: tuple[tuple[Any, ...], Mapping[str, Any]] | None,
    ) -> None:
        # `_where`, `_freeze` and `_register` are written out here for what nearly every call needs: this
        # function runs hundreds of times in a forward that takes milliseconds.
        frame: FrameType | None = sys._getframe(2)
        direct = True
        code: CodeType | None = None
        lasti = 0
        while frame is not None:
            here = frame.f_code
            known = CODES.get(id(here))
            kind = known[1] if known is not None else classify(here)
            if kind == _USER:
                code, lasti = here, frame.f_lasti
                break
            if kind == _INNER:
                direct = False
            elif kind == _EDGE:
                break
            frame = frame.f_back
        refs, made = self._serials, self._made
        if before is None:
            values = []
            for value in args:
                if type(value) is Tensor:
                    ref = refs.get(id(value))
                    if ref is None or made[ref][0] != value.shape:
                        ref = self.serial(value)
                    values.append(ref)
                else:
                    values.append(self._freeze(value))
            frozen = tuple(values)
            named = self._freeze_named(kwargs) if kwargs else _NOTHING
        else:
            frozen, named = before
        memory = op.memory
        if memory is VIEW:
            memory = self._shares(args, outputs[0], op)
        if len(outputs) == 1:
            output = outputs[0]
            ref = refs[id(output)] = Ref(len(made))
            made.append((output.shape, strides_of(output), output.dtype, output.device))
            serials: tuple[Ref, ...] = (ref,)
        else:
            serials = tuple([self._register(output) for output in outputs])
        snapshots = tuple([to_numpy(output) for output in outputs]) if self._values else None
        event = (
            op, code, lasti, direct, self.call, frozen, named, serials, memory, self._depth, None, snapshots
        )  # fmt: skip
        if self._capture is not None:
            index = len(self.recording.raw)
            self._capture.saw(index, op, args, kwargs or {}, frozen, named, serials, outputs, self.call)
        self._events(event)
        if self._on_output is not None:
            self._on_output(Event(*event), result)

    def _where(self) -> tuple[CodeType | None, int, bool]:
        """The instruction of the innermost frame that is the user's, and whether it made the call itself."""
        frame: FrameType | None = sys._getframe(3)
        direct = True
        while frame is not None:
            code = frame.f_code
            known = CODES.get(id(code))
            kind = known[1] if known is not None else classify(code)
            if kind == _USER:
                return code, frame.f_lasti, direct
            if kind == _INNER:
                direct = False
            elif kind == _EDGE:
                break
            frame = frame.f_back
        return None, 0, False

    def _register(self, tensor: Tensor) -> Ref:
        ref = self._serials[id(tensor)] = Ref(len(self._made))
        self._made.append((tensor.shape, strides_of(tensor), tensor.dtype, tensor.device))
        return ref

    def serial(self, tensor: Tensor) -> Ref:
        """The serial of a tensor; a tensor that no recorded call made gets one as a leaf."""
        known = self._serials.get(id(tensor))
        # An id may be reused for a tensor that was made out of sight; its shape gives it away.
        if known is not None and self._made[known][0] == tensor.shape:
            return known
        ref = self._register(tensor)
        self.recording.leaves[ref] = id(tensor)
        return ref

    def _freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, Tensor):
            return self.serial(value)
        if kind is tuple or kind is list or kind is torch.Size:
            return tuple([self._freeze(item) for item in value])
        if kind is slice:
            return slice(self._freeze(value.start), self._freeze(value.stop), self._freeze(value.step))
        return f"<{kind.__name__}>"

    def _freeze_all(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self._freeze(value) for value in args])

    def _freeze_named(self, kwargs: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return {name: self._freeze(value) for name, value in kwargs.items()} if kwargs else _NOTHING

    def _shares(self, args: tuple[Any, ...], output: Tensor, op: Op) -> str:
        store = storage_of(output)
        for value in args:
            if isinstance(value, Tensor):
                if value is output or storage_of(value) == store:
                    return "view"
            elif isinstance(value, tuple | list):
                for item in value:
                    if isinstance(item, Tensor) and storage_of(item) == store:
                        return "view"
        return "copy" if op.copies else "new"

    def _note_size(self, args: tuple[Any, ...]) -> None:
        code, lasti, direct = self._where()
        if direct and code is not None and args and isinstance(args[0], Tensor):
            frozen = self._freeze_all(args)
            self.recording.sizes.append((code, lasti, len(self.recording.raw), frozen))

    def _note_failure(
        self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: BaseException
    ) -> None:
        code, lasti, direct = self._where()
        text = (str(error) if isinstance(error, Exception) else "") or type(error).__name__
        frozen, named = self._freeze_all(args), self._freeze_named(kwargs)
        self._events(
            (
                op,
                code,
                lasti,
                direct,
                self.call,
                frozen,
                named,
                (),
                "new",
                self._depth,
                text or "failed",
                None,
            )
        )

    # -- calls that write into memory, and functions of PyTorch whose inside is wanted ------------------

    def _careful(self, op: Op, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if op.reenter and (self._inner or self._capture is not None):
            return self._enter(op, func, args, kwargs)
        before = (self._freeze_all(args), dict(self._freeze_named(kwargs)))
        written = kwargs.get("out") if op.out else (args[0] if args else None)
        if self._capture is not None and isinstance(written, Tensor):
            self._capture.before_write(written)
        if isinstance(written, Tensor) and self.guard is not None:
            self.guard.before_write(written)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._note_failure(op, args, kwargs, error)
            raise
        if isinstance(result, Tensor):
            self._careful_note(op, args, kwargs, result, (result,), before)
        elif isinstance(written, Tensor):
            self._careful_note(op, args, kwargs, result, (written,), before)
        elif isinstance(result, tuple | list):
            tensors = tuple(item for item in result if isinstance(item, Tensor))
            if tensors:
                self._careful_note(op, args, kwargs, result, tensors, before)
        return result

    def _careful_note(self, *arguments: Any) -> None:
        # `_where` counts frames; this keeps the count the same on both ways to `_note`.
        self._note(*arguments)

    def _enter(self, op: Op, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a Python function of PyTorch's with the mode on, so that its inner steps are seen too."""
        before = (self._freeze_all(args), dict(self._freeze_named(kwargs)))
        depth = self._depth
        self._depth = depth + 1
        if self._capture is not None:
            self._capture.enter(op, args, kwargs)
        try:
            with self:
                result = op.opened(*args, **kwargs)
        except BaseException as error:
            self._depth = depth
            self._note_failure(op, args, kwargs, error)
            raise
        finally:
            self._depth = depth
            if self._capture is not None:
                self._capture.leave()
        tensors = (
            (result,) if isinstance(result, Tensor) else tuple(x for x in result if isinstance(x, Tensor))
        )
        self._careful_note(op, args, kwargs, result, tensors, before)
        return result


_NOTHING: Mapping[str, Any] = {}
_PLAIN = frozenset({int, float, bool, str, type(None), type(Ellipsis), torch.dtype, torch.device})


def classify(code: CodeType) -> int:
    """Whether a frame's code is the user's, a library's plumbing, or the edge where a recording begins."""
    name = code.co_filename
    if name.startswith(_LAYERS):
        kind = _USER
    elif name.startswith(_HERE):
        kind = _EDGE if code.co_name == "_run_recorded" else _DISPATCH
    elif name in _DISPATCHERS:
        kind = _DISPATCH
    elif name.startswith(_TORCH) or any(part in name for part in _PLUMBING):
        kind = _INNER
    else:
        kind = _USER
    CODES[id(code)] = (code, kind)
    return kind


@contextmanager
def module_calls(recorder: Recorder) -> Iterator[None]:
    """While this is open, the recorder knows which module's call is running.

    `nn.Module._call_impl` is wrapped for the time being: hooks on the user's modules would change them, and
    replacing `__call__` itself would make Python update every subclass. Compiled modules run outside the
    mode, which would break their graphs.
    """
    original = nn.Module._call_impl
    calls = recorder.recording.calls
    serial = recorder.serial
    thread = threading.get_ident()

    def _call_impl(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(module, *args, **kwargs)
        if type(module).__name__ == "OptimizedModule":  # its own file takes a second to import
            with torch._C.DisableTorchFunction():
                return original(module, *args, **kwargs)
        parent = recorder.call
        recorder.call = len(calls)
        inputs = tuple([serial(x) if isinstance(x, Tensor) else None for x in args])
        named = {k: serial(x) for k, x in kwargs.items() if isinstance(x, Tensor)} if kwargs else _NOTHING
        calls.append((module, parent, inputs, named))
        try:
            return original(module, *args, **kwargs)
        finally:
            recorder.call = parent

    nn.Module._call_impl = _call_impl  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._call_impl = original  # type: ignore[method-assign]


def record(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    inner: bool = False,
    values: bool = False,
    capture: Capture | None = None,
    input_axes: Mapping[str, tuple[str | None, ...]] | None = None,
    on_output: Callable[[Event, Any], None] | None = None,
) -> Recording:
    """Run `module(*args, **kwargs)` once and note what happened.

    An exception of the module's is kept in `Recording.error` together with all steps before it; only
    `KeyboardInterrupt` passes. The module, its buffers and modes, random number generators and global
    modes are as before when this returns.
    """
    recording = Recording(module, capture=capture, input_axes=dict(input_axes or {}))
    recorder = Recorder(recording, inner=inner, values=values, on_output=on_output)
    names = _argument_names(module, args)
    for name, value in [*zip(names, args, strict=False), *(kwargs or {}).items()]:
        if isinstance(value, Tensor):
            recording.arguments.append((name, recorder.serial(value)))
    given = [*args, *(kwargs or {}).values()]
    if capture is not None:
        capture.begin(
            recorder.serial, [v for v in [*args, *(kwargs or {}).values()] if isinstance(v, Tensor)]
        )
    with preserved(module, list(tensors_in(given))) as guard:
        recorder.guard = guard
        _run_recorded(recorder, module, args, kwargs or {})
    recorder.guard = None
    first = _first_tensor(recording.result)
    if first is not None:
        recording.result_serial = recorder.serial(first)
    return recording


def _run_recorded(
    recorder: Recorder, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    recording = recorder.recording
    try:
        with module_calls(recorder), recorder:
            recording.result = module(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may raise anything, SystemExit too
        recording.error = error


def _argument_names(module: nn.Module, args: Sequence[Any]) -> list[str]:
    import inspect

    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"argument {i}" for i in range(len(args))]


def _first_tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            found = _first_tensor(item)
            if found is not None:
                return found
    return None
