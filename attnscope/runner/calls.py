"""Around each outermost call of a module, in any thread: a recorder, for as long as anyone watches.

`nn.Module._call_impl` is wrapped. Hooks on the modules would change them, and global hooks would send every
call PyTorch's slow way. What a script compiles runs without the mode, which would break its graphs.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Protocol

import torch
from torch import nn
from torch.compiler import is_compiling, is_dynamo_compiling

from attnscope.runner.memory import Memory, at_rest
from attnscope.runner.opaque import FUSED, KINDS, PLAIN, is_fused, kind_of, without
from attnscope.runner.recorder import ScriptRecorder
from attnscope.runner.tracebacks import stripped
from attnscope.sandbox.depth import deeper, shallower


class Watcher(Protocol):
    """Who wants to know what modules do. `memory` takes what runs while it watches."""

    memory: Memory

    def wants(self, module: nn.Module) -> bool:
        """Whether a recording may begin with a call of this module."""

    def recorder(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ScriptRecorder:
        """What records the call."""

    def ended(self, recorder: ScriptRecorder, error: BaseException | None) -> None:
        """The call is over; the recording still has its modules."""


class _Thread:
    """One thread: its recorder while an outermost call runs, and whether it is inside something opaque."""

    __slots__ = ("off", "recorder")

    def __init__(self) -> None:
        self.recorder: ScriptRecorder | None = None
        self.off = 0


_local = threading.local()
_watchers: list[Watcher] = []
_originals: dict[str, Any] = {}


def _thread() -> _Thread:
    try:
        found: _Thread = _local.state
    except AttributeError:
        found = _local.state = _Thread()
    return found


def install(watcher: Watcher) -> None:
    """Begin to watch. The newest watcher that wants a module records it."""
    _watchers.append(watcher)
    if len(_watchers) > 1:
        return
    _originals["_call_impl"] = nn.Module._call_impl
    _originals["compile"] = torch.compile
    nn.Module._call_impl = _wrapped_calls(nn.Module._call_impl)  # type: ignore[method-assign]
    torch.compile = _wrapped_compile(torch.compile)
    # The compiler inlines modules whose call is the one that it knows.
    _tell_compiler(_originals["_call_impl"], nn.Module._call_impl)


def uninstall(watcher: Watcher) -> None:
    """Stop watching; with the last watcher PyTorch is as it was."""
    _watchers.remove(watcher)
    if _watchers:
        return
    wrapped = nn.Module._call_impl
    nn.Module._call_impl = _originals.pop("_call_impl")  # type: ignore[method-assign]
    torch.compile = _originals.pop("compile")
    _tell_compiler(wrapped, nn.Module._call_impl)


def _tell_compiler(old: Any, new: Any) -> None:
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "unpatched_nn_module_call_impl", None) is old:
            module.unpatched_nn_module_call_impl = new  # type: ignore[attr-defined]


def _wrapped_calls(original: Callable[..., Any]) -> Any:
    kinds, local = KINDS, _local

    @functools.wraps(original)
    def _call_impl(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return original(module, *args, **kwargs)
        try:
            try:
                thread = local.state
            except AttributeError:
                thread = _thread()
            recorder = thread.recorder
            if thread.off or recorder is None:
                return _unrecorded(original, thread, module, args, kwargs)
            left = recorder.enter(module, args, kwargs)
            try:
                if kinds.get(type(module)) is PLAIN:
                    return original(module, *args, **kwargs)
                return _of_a_kind(original, thread, recorder, module, args, kwargs)
            finally:
                recorder.leave(left)
        except BaseException as error:
            # A bare `raise` adds no frame: who catches this sees the traceback as it would be without us.
            error.__traceback__ = stripped(error.__traceback__)
            raise

    return _call_impl


def _unrecorded(
    original: Callable[..., Any],
    thread: _Thread,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """A call outside of any that is recorded, or inside of something opaque."""
    if thread.off or _in_backward_or_tracing():
        return original(module, *args, **kwargs)
    watcher = next((one for one in reversed(_watchers) if one.wants(module)), None)
    if watcher is None:
        return original(module, *args, **kwargs)
    return _outermost(original, thread, watcher, module, args, kwargs)


def _of_a_kind(
    original: Callable[..., Any],
    thread: _Thread,
    recorder: ScriptRecorder,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """A call of a module whose inside may have to run without the mode."""
    kind = kind_of(module)
    # With attention wanted, the inside of PyTorch's own layers is wanted too.
    if kind is FUSED and (recorder.recording.capture is not None or not is_fused(module)):
        kind = PLAIN
    if kind is PLAIN:
        return original(module, *args, **kwargs)
    name = type(module).__name__ if kind is FUSED else kind
    return _aside(thread, recorder, name, functools.partial(original, module), args, kwargs)


def _outermost(
    original: Callable[..., Any],
    thread: _Thread,
    watcher: Watcher,
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    recorder = watcher.recorder(module, args, kwargs)
    grad = torch.is_grad_enabled()
    failure: BaseException | None = None
    thread.recorder = recorder
    deeper(1.25)
    try:
        with recorder:
            left = recorder.enter(module, args, kwargs)
            try:
                return _of_a_kind(original, thread, recorder, module, args, kwargs)
            finally:
                recorder.leave(left)
    except BaseException as error:
        error.__traceback__ = stripped(error.__traceback__)  # it is known again by its innermost frame
        failure = error
        raise
    finally:
        thread.recorder = None
        shallower()
        try:
            watcher.ended(recorder, failure)
            ran = recorder.recording.calls
            memories = [
                one.memory
                for one in _watchers  # of two that want a module one records it, and both know of it
                if one is watcher or any(one.wants(call[0]) for call in ran)
            ]
            kept = at_rest(recorder.recording, grad, recorder.opaque, recorder.restarts)
            for memory in memories:
                memory.keep(kept, failure)
        finally:
            failure = None  # a frame that keeps its exception keeps every tensor in the traceback


def _in_backward_or_tracing() -> bool:
    """Activation checkpointing runs a forward again in backward; tracers need no second observer."""
    return (
        torch._C._current_graph_task_id() != -1
        or torch._C._get_tracing_state() is not None
        or bool(is_compiling())
    )


# -- what runs without the mode -------------------------------------------------------------------------


def _aside(
    thread: _Thread,
    recorder: ScriptRecorder | None,
    name: str,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Run something opaque: one step of the recording, if there is one."""
    thread.off += 1
    try:
        if recorder is None:
            return call(*args, **kwargs)
        with without(recorder):
            result = call(*args, **kwargs)
    except BaseException as error:
        if recorder is not None:
            recorder.note_opaque(name, args, kwargs, None, error)
        raise
    finally:
        thread.off -= 1
    recorder.note_opaque(name, args, kwargs, result)
    return result


def aside(name: str, function: Callable[..., Any]) -> Any:
    """A compiled function that leaves the mode of whoever calls it."""

    @functools.wraps(function)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return function(*args, **kwargs)
        thread = _thread()
        if thread.off:
            return function(*args, **kwargs)
        try:
            return _aside(thread, thread.recorder, name, function, args, kwargs)
        except BaseException as error:
            error.__traceback__ = stripped(error.__traceback__)
            raise

    return compiled


def _wrapped_compile(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if getattr(model, "__func__", None) is nn.Module._call_impl:  # from `module.compile()`
            model = MethodType(_originals["_call_impl"], model.__self__)
        if model is None:
            decorate = original(model, *args, **kwargs)

            def decorator(function: Any) -> Any:
                return _left(function, decorate(function))

            return decorator
        return _left(model, original(model, *args, **kwargs))

    return compile


def _left(given: Any, made: Any) -> Any:
    """What torch.compile made; modules and classes are known by their calls."""
    if made is given or isinstance(made, nn.Module | type) or not callable(made):
        return made
    return aside("compiled", made)
