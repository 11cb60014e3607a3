"""Runs a small module as `check` does, recorded, and hands the exception and its steps to `diagnose`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from attnscope.crashes import Crash, diagnose
from attnscope.crashes.crash import Phase
from attnscope.diagnostic import Diagnostic
from attnscope.recorder.record import record
from attnscope.schema import Step
from attnscope.steps import Steps
from tests.importing import load


def crash(
    make: Callable[[], Any],
    *inputs: Any,
    state: Any = None,
    device: str | None = None,
    cls: type | None = None,
) -> Diagnostic | None:
    """Constructs, loads, moves, runs and goes back; the first finding of the first crash, or None."""
    torch.manual_seed(0)
    phase: Phase = "construct"
    module: Any = None
    steps: tuple[Step, ...] = ()
    try:
        module = make()
        if state is not None:
            phase = "load"
            module.load_state_dict(state)
        if device is not None:
            phase = "move"
            module.to(device)
            inputs = tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in inputs)
        else:
            phase = "forward"
        recording = record(module, inputs) if isinstance(module, nn.Module) else None
        if recording is not None:
            steps = tuple(Steps(recording).rows)
            if recording.error is not None:
                raise recording.error
        output = recording.result if recording is not None else module(*inputs)
        if device is None:
            phase = "backward"
            first = output[0] if isinstance(output, tuple) else output
            if isinstance(first, torch.Tensor) and any(p.requires_grad for p in module.parameters()):
                first.sum().backward()
    except Exception as error:
        findings = diagnose(
            Crash(
                error,
                phase,
                module,
                steps,
                cls or (make if isinstance(make, type) else None),
                state,
                device,
            )
        )
        assert findings
        return findings[0]
    return None


def run(source: str, tmp_path: Path, cls: str = "Example", name: str = "") -> Diagnostic | None:
    """The finding for a class in a source text; its `x`, `state` and `device` are used if it sets them."""
    path = tmp_path / f"example_{abs(hash((source, name))) % 10**12}.py"
    path.write_text(source, encoding="utf-8")
    return run_file(load(path, path.stem), cls)


def run_file(module: ModuleType, cls: str) -> Diagnostic | None:
    known = vars(module)
    x = known.get("x", torch.zeros(2, 6, 16))
    inputs = x if isinstance(x, tuple) else (x,)
    return crash(known[cls], *inputs, state=known.get("state"), device=known.get("device"))


def named(finding: Diagnostic) -> list[int]:
    """The lines that a reader looks at: the span's and the first label's."""
    first = [label.span.line for label in finding.labels[:1]]
    return [*([finding.span.line] if finding.span else []), *first]
