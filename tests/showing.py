"""Short forms of rows, to compare with what a test expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from attnscope.attention import build_attention
from attnscope.recorder.capture import Capture, Keep
from attnscope.recorder.record import Recording, record
from attnscope.schema import Step, TensorInfo
from attnscope.steps import Steps


def run(module: nn.Module, *args: Any, inner: bool = False, **kwargs: Any) -> Sequence[Step]:
    """The rows of one run; an exception of the module's is raised."""
    recording = record(module, args, kwargs, inner=inner)
    if recording.error is not None:
        raise recording.error
    assert recording.missed == 0
    return Steps(recording, inner=inner).rows


def attend(module: nn.Module, *args: Any, keep: Keep = "weights", **kwargs: Any) -> Sequence[Any]:
    """What attention was found in one run, with scores: each an `Attention`, whose arrays are there."""
    capture = Capture(keep, scores=True)
    recording = record(module, args, kwargs, capture=capture)
    if recording.error is not None:
        raise recording.error
    assert recording.missed == 0 and capture.missed == []
    return build_attention(recording)


def axes(info: TensorInfo) -> str:
    """`B T H D`; sizes without a name are numbers."""
    return " ".join(name or str(size) for name, size in zip(info.axes, info.shape, strict=True))


def ops(rows: Sequence[Step]) -> list[tuple[int, str | None, str]]:
    """Line, variable and operation of each row."""
    return [(row.line, row.variable, row.op) for row in rows]


def outputs(rows: Sequence[Step]) -> list[str]:
    """The axes of the first output of each row."""
    return [axes(row.outputs[0]) for row in rows]


def recorded(module: nn.Module, *args: Any, **kwargs: Any) -> Recording:
    """One run with attention looked for, whatever it raised."""
    return record(module, args, kwargs, capture=Capture("weights"))
