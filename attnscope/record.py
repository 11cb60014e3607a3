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
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnscope.capture import Capture
from attnscope.ops import NEW, VIEW_OF_MANY, Op, op_of
from attnscope.preserve import Guard, preserved
from attnscope.tensors import Ref, storage_of, tensors_in, to_numpy

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LAYERS = _HERE + "layers" + os.sep

_USER, _DISPATCH, _INNER, _EDGE = 0, 1, 2, 3
_CODES: dict[int, tuple[CodeType, int]] = {}

# These files of PyTorch's stand between a call in the user's source and the mode without adding a step.
_DISPATCHERS = tuple(
    _TORCH + name for name in ("overrides.py", "_tensor.py", "functional.py", "nn/functional.py", "_ops.py")
)

# Frames that carry these names are the interpreter's or a library's plumbing, never the user's own code.
_PLUMBING = ("<frozen ", os.sep + "contextlib.py", os.sep + "functools.py", os.sep + "einops" + os.sep)


class Made(NamedTuple):
    """What is kept of a tensor: no storage, no values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


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


class Call(NamedTuple):
    """One call of a module: which, from inside which other call, and the serials of its tensor arguments."""

    module: nn.Module
    parent: int
    inputs: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass
class Recording:
    """Everything noted during one run. `result` is what the module returned, `error` what it raised."""

    root: nn.Module
    events: list[Event] = field(default_factory=list)
    sizes: list[tuple[CodeType, int, int, Any]] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    leaves: dict[int, int] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    owned: dict[int, tuple[str, str]] = field(default_factory=dict)
    arguments: list[tuple[str, int]] = field(default_factory=list)
    input_axes: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    capture: Capture | None = None
    result: Any = None
    result_serial: int | None = None
    error: BaseException | None = None

    def path_of(self, call: int) -> str:
        """The dotted path of a call's module; the class in angle brackets if it is not registered."""
        if call < 0:
            return ""
        module = self.calls[call].module
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
        self._events = recording.events.append
        self._made = recording.made
        self._capture = recording.capture

    # -- the hot path -------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        op = op_of(func)
        if kwargs is None:
            kwargs = {}
        if op.writes or op.reenter:
            return self._careful(op, func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._note_failure(op, args, kwargs, error)
            raise
        kind = type(result)
        if kind is Tensor or isinstance(result, Tensor):
            self._note(op, args, kwargs, result, (result,))
        elif kind is torch.Size or kind is int:
            if op.sizes:
                self._note_size(args)
        elif isinstance(result, tuple | list):
            tensors = tuple(item for item in result if isinstance(item, Tensor))
            if tensors:
                self._note(op, args, kwargs, result, tensors)
        return result

    def _note(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        outputs: tuple[Tensor, ...],
        before: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    ) -> None:
        code, lasti, direct = self._where()
        frozen, named = before or (self._freeze_all(args), self._freeze_named(kwargs))
        memory = "new"
        if op.writes and not op.out:
            memory = "in-place"
        elif op.memory is not NEW:
            memory = self._shares(args, outputs[0], op)
        serials = tuple([self._register(output) for output in outputs])
        values = None
        if self._values:
            values = tuple(to_numpy(output) for output in outputs)
        event = Event(
            op, code, lasti, direct, self.call, frozen, named, serials, memory, self._depth, None, values
        )
        if self._capture is not None:
            self._capture.saw(
                len(self.recording.events), op, args, kwargs, frozen, named, serials, outputs, self.call
            )
        self._events(event)
        if self._on_output is not None:
            self._on_output(event, result)

    def _where(self) -> tuple[CodeType | None, int, bool]:
        """The instruction of the innermost frame that is the user's, and whether it made the call itself."""
        frame: FrameType | None = sys._getframe(3)
        first = True
        while frame is not None:
            code = frame.f_code
            known = _CODES.get(id(code))
            kind = known[1] if known is not None else classify(code)
            if kind == _USER:
                return code, frame.f_lasti, first
            if kind == _EDGE:
                break
            if kind == _INNER:
                first = False
            frame = frame.f_back
        return None, 0, False

    def _register(self, tensor: Tensor) -> int:
        serial = len(self._made)
        self._made.append(
            Made(tensor.shape, tensor.stride() if _strided(tensor) else (), tensor.dtype, tensor.device)
        )
        self._serials[id(tensor)] = serial
        return serial

    def serial(self, tensor: Tensor) -> int:
        """The serial of a tensor; a tensor that no recorded call made gets one as a leaf."""
        known = self._serials.get(id(tensor))
        # An id may be reused for a tensor that was made out of sight; its shape gives it away.
        if known is not None and self._made[known].shape == tensor.shape:
            return known
        serial = self._register(tensor)
        self.recording.leaves[serial] = id(tensor)
        return serial

    def _freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind is Tensor or kind is nn.Parameter:
            return Ref(self.serial(value))
        if kind is int or kind is float or value is None or kind is bool or kind is str or value is Ellipsis:
            return value
        if isinstance(value, Tensor):
            return Ref(self.serial(value))
        if kind is tuple or kind is list or kind is torch.Size:
            return tuple([self._freeze(item) for item in value])
        if kind is slice:
            return slice(self._freeze(value.start), self._freeze(value.stop), self._freeze(value.step))
        if kind is torch.dtype or kind is torch.device:
            return value
        return f"<{kind.__name__}>"

    def _freeze_all(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self._freeze(value) for value in args])

    def _freeze_named(self, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: self._freeze(value) for name, value in kwargs.items()} if kwargs else _NOTHING

    def _shares(self, args: tuple[Any, ...], output: Tensor, op: Op) -> str:
        store = storage_of(output)
        for value in args:
            if isinstance(value, Tensor):
                if value is output or storage_of(value) == store:
                    return "view"
            elif op.memory is VIEW_OF_MANY and isinstance(value, tuple | list):
                for item in value:
                    if isinstance(item, Tensor) and storage_of(item) == store:
                        return "view"
        return "copy" if op.copies else "new"

    def _note_size(self, args: tuple[Any, ...]) -> None:
        code, lasti, direct = self._where()
        if direct and code is not None and args and isinstance(args[0], Tensor):
            frozen = self._freeze_all(args)
            self.recording.sizes.append((code, lasti, len(self.recording.events), frozen))

    def _note_failure(
        self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: BaseException
    ) -> None:
        code, lasti, direct = self._where()
        text = str(error) if isinstance(error, Exception) else type(error).__name__
        frozen, named = self._freeze_all(args), self._freeze_named(kwargs)
        self._events(
            Event(op, code, lasti, direct, self.call, frozen, named, (), "new", self._depth, text or "failed")
        )

    # -- calls that write into memory, and functions of PyTorch whose inside is wanted ------------------

    def _careful(self, op: Op, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if op.reenter and (self._inner or self._capture is not None):
            return self._enter(op, func, args, kwargs)
        before = (self._freeze_all(args), dict(self._freeze_named(kwargs)))
        written = kwargs.get("out") if op.out else (args[0] if args else None)
        if self._capture is not None and isinstance(written, Tensor):
            self._capture.before_write(written)
        if isinstance(written, Tensor):
            if self.guard is not None:
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


def _strided(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


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
    _CODES[id(code)] = (code, kind)
    return kind


@contextmanager
def module_calls(recorder: Recorder) -> Iterator[None]:
    """While this is open, the recorder knows which module's call is running.

    `nn.Module.__call__` is wrapped for the time being: hooks on the user's modules would change them.
    """
    original = nn.Module.__call__
    calls = recorder.recording.calls
    thread = threading.get_ident()

    def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(module, *args, **kwargs)
        if hasattr(type(module), "_orig_mod") or "_orig_mod" in module.__dict__.get("_modules", ()):
            with torch._C.DisableTorchFunction():
                return original(module, *args, **kwargs)
        parent = recorder.call
        recorder.call = len(calls)
        calls.append(
            Call(
                module,
                parent,
                tuple([Ref(recorder.serial(x)) if isinstance(x, Tensor) else None for x in args]),
                {k: Ref(recorder.serial(x)) for k, x in kwargs.items() if isinstance(x, Tensor)},
            )
        )
        try:
            return original(module, *args, **kwargs)
        finally:
            recorder.call = parent

    nn.Module.__call__ = __call__  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]


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
    for path, child in module.named_modules():
        recording.paths.setdefault(id(child), path)
    for path, parameter in module.named_parameters():
        recording.owned[id(parameter)] = ("parameter", path)
    for path, buffer in module.named_buffers():
        recording.owned[id(buffer)] = ("buffer", path)
    recorder = Recorder(recording, inner=inner, values=values, on_output=on_output)
    names = _argument_names(module, args)
    for name, value in [*zip(names, args, strict=False), *(kwargs or {}).items()]:
        if isinstance(value, Tensor):
            recording.arguments.append((name, recorder.serial(value)))
    if capture is not None:
        capture.begin(recorder.serial, [v for v in [*args, *(kwargs or {}).values()] if isinstance(v, Tensor)])
    with preserved(module, [t for t in tensors_in([*args, *(kwargs or {}).values()])]) as guard:
        recorder.guard = guard
        _run_recorded(recorder, module, args, kwargs or {})
    recorder.guard = None
    first = _first_tensor(recording.result)
    if first is not None:
        recording.result_serial = recorder.serial(first)
    _name_attributes(recording, recorder)
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


def _name_attributes(recording: Recording, recorder: Recorder) -> None:
    """Tensors that modules keep as plain attributes get their attribute's name, as buffers have theirs."""
    seen = {leaf for leaf in recording.leaves.values()}
    for path, child in recording.root.named_modules():
        for name, value in list(vars(child).items()):
            if isinstance(value, Tensor) and id(value) in seen:
                full = f"{path}.{name}" if path else name
                recording.owned.setdefault(id(value), ("attribute", full))
