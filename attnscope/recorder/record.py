"""Recording one run of a module: run it once under the recorder's mode, and leave it as it was.

No other function stands in this file: the recorder takes its frames for the edge of what is the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from attnscope.recorder.calls import module_calls
from attnscope.recorder.capture import Capture
from attnscope.recorder.mode import Recorder
from attnscope.recorder.recording import Call, Event, Made, Recording
from attnscope.sandbox.guard import preserved
from attnscope.sandbox.tensors import first_tensor, is_tensor

__all__ = ["Call", "Event", "Made", "Recorder", "Recording", "module_calls", "record"]


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
        if is_tensor(value):
            recording.arguments.append((name, recorder.serial(value)))
    given = [*args, *(kwargs or {}).values()]
    if capture is not None:
        capture.begin(recorder.serial, [v for v in given if is_tensor(v)])
    with preserved(module, given) as guard:
        recorder.guard = guard
        _run_recorded(recorder, module, args, kwargs or {})
    recorder.guard = None
    first = first_tensor(recording.result)
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
