"""The mode that sees every tensor operation of a run, as the source called it, without holding a tensor.

A `TorchFunctionMode` sees each call at the level of the source. What it notes while the module runs is
raw (function, instruction, shapes, strides); naming and explaining come later, in `attnscope.axes.naming`, so
that a run is slowed as little as possible. Tensors are known by serial numbers: a tensor gets a new one
each time an operation makes or rewrites it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from attnscope.ops.calls import KNOWN, VIEW, Op, op_of, writing, written
from attnscope.recorder.recording import Event, Recording
from attnscope.recorder.tensors import Ref, facts_of, strides_of, to_numpy
from attnscope.sandbox.guard import Guard
from attnscope.sandbox.tensors import storage_of
from attnscope.strict import passed_over

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LAYERS = _HERE + "layers" + os.sep
_RECORD = os.path.join(_HERE, "recorder", "record.py")

_USER, _DISPATCH, _INNER, _EDGE = 0, 1, 2, 3
FILES: dict[str, int] = {}

# These files of PyTorch's stand between a call in the user's source and the mode without adding a step.
_DISPATCHERS = tuple(
    _TORCH + name for name in ("overrides.py", "_tensor.py", "functional.py", "nn/functional.py", "_ops.py")
)

# Files with these in their names are the interpreter's or a library's plumbing, never the user's own code.
_PLUMBING = ("<frozen ", os.sep + "contextlib.py", os.sep + "functools.py", os.sep + "einops" + os.sep)

_NOTHING: Mapping[str, Any] = {}
_PLAIN = frozenset({int, float, bool, str, type(None), type(Ellipsis), torch.dtype, torch.device})


def classify(name: str) -> int:
    """Whether a file's code is the user's, a library's plumbing, or the edge where a recording begins."""
    if name.startswith(_LAYERS):
        kind = _USER
    elif name.startswith(_HERE):
        kind = _EDGE if name == _RECORD else _DISPATCH
    elif name in _DISPATCHERS:
        kind = _DISPATCH
    elif name.startswith(_TORCH) or any(part in name for part in _PLUMBING):
        kind = _INNER
    else:
        kind = _USER
    FILES[name] = kind
    return kind


class Recorder(TorchFunctionMode):
    """Notes each call into a `Recording`. Enter it around the module's call, in the thread that runs it."""

    def __init__(
        self,
        recording: Recording,
        *,
        inner: bool = False,
        values: bool = False,
        on_output: Callable[[Event, Any], None] | None = None,
        most: int = sys.maxsize,
    ) -> None:
        super().__init__()
        self._most = most
        self.recording = recording
        self.call = -1
        self.guard: Guard | None = None
        self._inner = inner
        self._values = values
        self._on_output = on_output
        self._serials: dict[int, Ref] = {}
        self._depth = 0
        self._raw = recording.raw
        self._made = recording.made
        self._capture = recording.capture

    # -- the hot path: every line here is paid for at each tensor operation ------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        op = KNOWN.get(func) or op_of(func)
        if kwargs and ("inplace" in kwargs or "out" in kwargs):
            op = writing(op, kwargs)
        if op.careful:
            return self._careful(op, func, args, kwargs or _NOTHING)
        try:
            result = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException as error:
            self._note_failure(op, args, kwargs or _NOTHING, error)
            raise
        if type(result) is Tensor:
            self._note(op, args, kwargs, result, (result,), None)
        elif op.sizes:
            self._note_size(args)
        else:
            tensors = _tensors_of(result)
            if tensors:
                self._note(op, args, kwargs, result, tensors, None)
        if len(self._raw) > self._most:
            self._begin_anew()
        return result

    def _begin_anew(self) -> None:
        """More than `most` events were noted: a recorder with a bound makes room here."""

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
        try:
            frame: FrameType | None = sys._getframe(2)
            direct = True
            code, lasti = None, 0
            while frame is not None:
                here = frame.f_code
                kind = FILES.get(here.co_filename)
                if kind is None:
                    kind = classify(here.co_filename)
                if kind == _USER:
                    code, lasti = here, frame.f_lasti
                    break
                if kind == _INNER:
                    direct = False
                elif kind == _EDGE:
                    break
                frame = frame.f_back
            refs, made = self._serials, self._made
            if before is not None:
                frozen, named = before
            elif op.always and _PLAIN.issuperset(map(type, args[1:])):  # a view: one tensor, and numbers
                value = args[0]
                ref = refs.get(id(value))
                if ref is None or made[ref][0] != value.shape:
                    ref = self._leaf(value)
                frozen = (ref, *args[1:])
                named = self._freeze_named(kwargs) if kwargs else _NOTHING
            else:
                values = []
                for value in args:
                    type_ = type(value)
                    if type_ is Tensor:
                        ref = refs.get(id(value))
                        if ref is None or made[ref][0] != value.shape:
                            ref = self._leaf(value)
                        values.append(ref)
                    elif type_ in _PLAIN:
                        values.append(value)
                    elif type_ is Parameter:  # it lives as long as its module: its id is no other tensor's
                        ref = refs.get(id(value))
                        values.append(self._leaf(value) if ref is None else ref)
                    else:
                        values.append(self._freeze(value))
                frozen = tuple(values)
                named = self._freeze_named(kwargs) if kwargs else _NOTHING
            memory = op.memory
            if memory is VIEW and not op.always:
                memory = self._shares(args, outputs[0], op)
            if len(outputs) == 1:
                output = outputs[0]
                serials: tuple[Ref, ...] = (Ref(len(made)),)
                refs[id(output)] = serials[0]
                made.append((output.shape, strides_of(output), output.dtype, output.device))
            else:
                serials = tuple([self._register(output) for output in outputs])
            snapshots = tuple([to_numpy(output) for output in outputs]) if self._values else None
        except Exception as error:
            # A tensor-like of the user's may refuse any question. The run goes on; the row is missing.
            passed_over(error)
            self.recording.missed += 1
            return
        if self._capture is not None:
            self._capture.saw(
                len(self._raw), op, args, kwargs or _NOTHING, frozen, named, serials, outputs, self.call
            )
        raw = (
            op, code, lasti, direct, self.call, frozen, named, serials, memory, self._depth, None, snapshots
        )  # fmt: skip
        self._raw.append(raw)
        if self._on_output is not None:
            self._on_output(Event(*raw), result)

    def _where(self, frame: FrameType | None) -> tuple[Any, int, bool]:
        """The instruction of the innermost frame that is the user's, and whether it made the call itself."""
        direct = True
        while frame is not None:
            code = frame.f_code
            kind = FILES.get(code.co_filename)
            if kind is None:
                kind = classify(code.co_filename)
            if kind == _USER:
                return code, frame.f_lasti, direct
            if kind == _INNER:
                direct = False
            elif kind == _EDGE:
                break
            frame = frame.f_back
        return None, 0, False

    # -- tensors by number -------------------------------------------------------------------------------

    def _register(self, tensor: Tensor) -> Ref:
        ref = self._serials[id(tensor)] = Ref(len(self._made))
        self._made.append(facts_of(tensor))
        return ref

    def serial(self, tensor: Tensor) -> Ref:
        """The serial of a tensor; a tensor that no recorded call made gets one as a leaf."""
        known = self._serials.get(id(tensor))
        # An id may be reused for a tensor that was made out of sight; its shape gives it away.
        if known is not None and self._made[known][0] == facts_of(tensor)[0]:
            return known
        return self._leaf(tensor)

    def _leaf(self, tensor: Tensor) -> Ref:
        ref = self._serials[id(tensor)] = Ref(len(self._made))
        self._made.append(facts_of(tensor))
        self.recording.leaves[ref] = id(tensor)
        return ref

    def _freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple or kind is list or kind is torch.Size:
            return tuple([item if type(item) in _PLAIN else self._freeze(item) for item in value])
        if issubclass(kind, Tensor):
            return self.serial(value)
        if kind is slice:
            if type(value.stop) in _PLAIN and type(value.start) in _PLAIN and type(value.step) in _PLAIN:
                return value
            return slice(self._freeze(value.start), self._freeze(value.stop), self._freeze(value.step))
        return f"<{kind.__name__}>"

    def _freeze_all(self, args: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self._freeze(value) for value in args])

    def _freeze_named(self, kwargs: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if not kwargs:
            return _NOTHING
        return {
            name: value if type(value) in _PLAIN else self._freeze(value) for name, value in kwargs.items()
        }

    def _shares(self, args: tuple[Any, ...], output: Tensor, op: Op) -> str:
        store = storage_of(output)
        for value in args:
            if issubclass(type(value), Tensor):
                if value is output or storage_of(value) == store:
                    return "view"
            elif issubclass(type(value), tuple | list):
                for item in value:
                    if issubclass(type(item), Tensor) and storage_of(item) == store:
                        return "view"
        return "copy" if op.copies else "new"

    # -- calls that make no tensor, and calls that fail --------------------------------------------------

    def _note_size(self, args: tuple[Any, ...]) -> None:
        code, lasti, direct = self._where(sys._getframe(2))
        if direct and code is not None and args and issubclass(type(args[0]), Tensor):
            self.recording.sizes.append((code, lasti, len(self._raw), self._freeze_all(args)))

    def _note_failure(
        self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: BaseException
    ) -> None:
        code, lasti, direct = self._where(sys._getframe(2))
        try:
            frozen, named = self._freeze_all(args), self._freeze_named(kwargs)
        except Exception as own:
            passed_over(own)
            self.recording.missed += 1
            return
        self._raw.append(
            (
                op, code, lasti, direct, self.call, frozen, named, (), "new", self._depth, said(error), None
            )
        )  # fmt: skip

    # -- calls that write into memory, and functions of PyTorch whose inside is wanted ------------------

    def _careful(self, op: Op, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if op.reenter and (self._inner or self._capture is not None):
            return self._enter(op, func, args, kwargs)
        before: Any = None
        changed = [tensor for value in written(op, args, kwargs) for tensor in _tensors_of(value)]
        try:
            before = (self._freeze_all(args), dict(self._freeze_named(kwargs)))
            for tensor in changed:
                if self._capture is not None:
                    self._capture.before_write(tensor)
                if self.guard is not None:
                    self.guard.before_write(tensor)
        except Exception as error:
            passed_over(error)
            self.recording.missed += 1
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._note_failure(op, args, kwargs, error)
            raise
        tensors = _tensors_of(result) or (() if op.hidden else tuple(changed))
        if tensors and before is not None:
            self._note(op, args, kwargs, result, tensors, before)
        return result

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
        self._note(op, args, kwargs, result, _tensors_of(result), before)
        return result


def _tensors_of(value: Any) -> tuple[Tensor, ...]:
    """The tensors that a call gave back: one, or those in its tuple or list."""
    kind = type(value)
    if issubclass(kind, Tensor):
        return (value,)
    if issubclass(kind, tuple | list):
        return tuple([item for item in value if issubclass(type(item), Tensor)])
    return ()


def said(error: BaseException) -> str:
    """The message of any exception, also of one that cannot be printed; its type where it has none."""
    try:
        text = str(error) if isinstance(error, Exception) else ""
    except Exception:
        text = ""
    return text or type(error).__name__
