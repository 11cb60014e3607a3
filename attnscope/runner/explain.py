"""From an exception that left a module to a report: the steps of that forward, and what was wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from torch import nn

from attnscope.crashes import Crash, Phase, diagnose
from attnscope.diagnostic import Diagnostic, Report
from attnscope.ignores import settled
from attnscope.recorder.recording import Recording
from attnscope.runner.memory import Kept, Memory
from attnscope.runner.tracebacks import chained
from attnscope.schema import Attention, Later, ModelInfo, Step, Trace
from attnscope.steps import Steps

_AUTOGRAD = (os.path.join("torch", "autograd", "__init__.py"), os.path.join("torch", "autograd", "graph.py"))
_MODULE = os.path.join("torch", "nn", "modules", "module.py")
_QUIET = (KeyboardInterrupt, SystemExit, GeneratorExit)


def explain(error: BaseException, target: str, memory: Memory) -> Report | None:
    """A report on an exception that left a module, or None for one that has nothing to do with any.

    What it was raised from is looked at too: `raise RuntimeError("training failed") from error`.
    """
    for one in chained(error):
        if isinstance(one, _QUIET):
            continue
        found = _one(one, target, memory)
        if found is not None:
            return found
    return None


def _one(error: BaseException, target: str, memory: Memory) -> Report | None:
    kept = memory.fault(error)
    phase: Phase = "forward"
    if kept is None and _in_backward(error.__traceback__):
        phase, kept = "backward", memory.before_backward()
    if kept is not None:
        recording = kept.restored()
        steps = tuple(Steps(recording).rows)
        crash = Crash(error, phase, recording.root, steps, type(recording.root))
        return _report(target, crash, diagnose(crash), trace_of(recording, steps), _notes(kept))
    unseen = _unseen(error)
    if unseen is None:
        return None
    notes = []
    if unseen.phase in ("forward", "backward"):
        notes.append("the steps before this were not seen: the call was compiled, scripted or a generator")
    return _report(target, unseen, diagnose(unseen), None, notes)


def _report(
    target: str, crash: Crash, findings: Sequence[Diagnostic], trace: Trace | None, notes: Sequence[str]
) -> Report:
    extra = {
        "phase": crash.phase,
        "exception": {"type": type(crash.error).__qualname__, "message": _words(crash.error)},
    }
    kept, ignored, _ = settled(findings)
    return Report(target, kept, trace=trace, notes=(*ignored, *notes), extra=extra)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # a hostile `__str__`
        return ""


def _notes(kept: Kept) -> list[str]:
    notes = []
    if kept.restarts:
        notes.append("the forward was long: its first steps were forgotten")
    for name in sorted(kept.opaque):
        notes.append(f"`{name}` calls are one step each: their inside cannot be seen")
    return notes


def trace_of(
    recording: Recording,
    steps: Sequence[Step] | Later[tuple[Step, ...]],
    attention: Sequence[Attention] = (),
) -> Trace:
    """A trace of a forward in the script."""
    root = recording.root
    model = ModelInfo(None, type(root).__name__, {}, None, "", _parameters(root))
    notes = tuple(recording.said_missed)
    rows = steps if isinstance(steps, Later) else tuple(steps)
    return Trace(model, (), None, rows, tuple(attention), notes=notes)


def _parameters(module: nn.Module) -> int:
    try:
        return sum(parameter.numel() for parameter in module.parameters())
    except Exception:  # lazy parameters have no size yet; a broken module has no tables
        return 0


# -- crashes that no recording belongs to ---------------------------------------------------------------


def _in_backward(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.endswith(_AUTOGRAD):
            return True
        traceback = traceback.tb_next
    return False


def _unseen(error: BaseException) -> Crash | None:
    """A crash in a constructor, in `load_state_dict`, in a move, or in a forward that was not watched."""
    found: Crash | None = None
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        code = frame.f_code
        own = code.co_filename.endswith(_MODULE)
        if own and code.co_name in ("_call_impl", "load_state_dict", "_apply", "to"):
            known = frame.f_locals
            module = known.get("self")
            if isinstance(module, nn.Module):
                if code.co_name == "load_state_dict":
                    return Crash(error, "load", module, (), type(module), state=known.get("state_dict"))
                if code.co_name == "_call_impl":
                    return Crash(error, "forward", module, (), type(module))
                found = found or Crash(error, "move", module, (), type(module), device=_device(known))
        elif found is None and not own and code.co_argcount:
            module = frame.f_locals.get(code.co_varnames[0])
            if isinstance(module, nn.Module) and not type(module).__module__.startswith("torch."):
                phase: Phase | None = {"__init__": "construct", "forward": "forward"}.get(code.co_name)  # type: ignore[assignment]
                if phase is not None:
                    of = None if phase == "construct" else module
                    found = Crash(error, phase, of, (), type(module))
        traceback = traceback.tb_next
    return found


def _device(known: dict[str, Any]) -> str | None:
    device = known.get("device")
    return str(device) if device is not None else None
