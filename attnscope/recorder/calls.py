"""Which module's call is running: `nn.Module._call_impl` is wrapped for as long as any thread records.

Hooks on the user's modules would change them, and replacing `__call__` itself would make Python update every
subclass. What is wrapped belongs to the process: the first recording wraps it, the last one to end undoes it.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnscope.recorder.tensors import Ref
from attnscope.sandbox.depth import deeper, shallower

if TYPE_CHECKING:
    from attnscope.recorder.mode import Recorder

_NOTHING: Mapping[str, Any] = {}
_MORE_FRAMES = 1.5  # each call of a module takes one frame more than it did, and the mode takes its own

_lock = threading.Lock()
_recorders: dict[int, Recorder] = {}
_undo = ExitStack()


@contextmanager
def module_calls(recorder: Recorder) -> Iterator[None]:
    """While this is open, the recorder knows which module's call is running in this thread."""
    thread = threading.get_ident()
    with _lock:
        around = _recorders.get(thread)
        if not _recorders:
            _install()
        _recorders[thread] = recorder
    deeper(_MORE_FRAMES)
    try:
        yield
    finally:
        shallower()
        with _lock:
            if around is not None:
                _recorders[thread] = around
            else:
                del _recorders[thread]
            if not _recorders:
                _undo.close()


def numbered(recorder: Recorder, tensor: Tensor) -> Ref:
    """The serial number of a tensor, while the recorder's mode is on."""
    number = recorder._serials.get(id(tensor))
    if number is not None:
        return number
    with torch._C.DisableTorchFunction():  # `.shape` would be noted as a step
        return recorder.serial(tensor)


def _install() -> None:
    original: Callable[..., Any] = nn.Module._call_impl
    recorders, get_ident = _recorders, threading.get_ident

    def _call_impl(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        recorder = recorders.get(get_ident())
        if recorder is None:
            return original(module, *args, **kwargs)
        calls, serials = recorder.recording.calls, recorder._serials
        parent = recorder.call
        recorder.call = len(calls)
        inputs: tuple[Ref | None, ...]
        named = _NOTHING
        if len(args) == 1 and type(args[0]) is Tensor:  # nearly every call
            inputs = (serials.get(id(args[0])) or numbered(recorder, args[0]),)
        else:
            inputs = tuple([numbered(recorder, x) if issubclass(type(x), Tensor) else None for x in args])
        if kwargs:
            named = {name: numbered(recorder, x) for name, x in kwargs.items() if issubclass(type(x), Tensor)}
        calls.append((module, parent, inputs, named))
        try:
            return original(module, *args, **kwargs)
        finally:
            recorder.call = parent

    _set(_call_impl)
    _undo.callback(_set, original)
    _uncompiled()


def _set(call_impl: Callable[..., Any]) -> None:
    setattr(nn.Module, "_call_impl", call_impl)  # noqa: B010 (mypy refuses to assign to a method)


def _uncompiled() -> None:
    """What `torch.compile` made runs as it was written: seen through a mode, a compiled graph would break."""
    # Whoever used `torch.compile` has loaded the compiler; importing it for nothing takes a second. Flex
    # attention loads it when it is first called.
    if "torch._dynamo" not in sys.modules and "torch.nn.attention.flex_attention" in sys.modules:
        importlib.import_module("torch._dynamo")
    compiler: Any = sys.modules.get("torch._dynamo")
    stance = getattr(compiler, "set_stance", None)
    if stance is not None:
        _undo.enter_context(stance("force_eager"))
