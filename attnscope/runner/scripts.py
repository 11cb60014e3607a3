"""Who watches a script: every module in every thread; the first attention, the first NaN where wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from attnscope.recorder.recording import Recording
from attnscope.runner.memory import Memory
from attnscope.runner.recorder import ScriptRecorder

if TYPE_CHECKING:
    from attnscope.diagnostic import Report
    from attnscope.recorder.capture import Capture
    from attnscope.runner.session import Session

MOST_TRIES = 64
"""Forwards in which attention is looked for; capturing costs time, and many scripts have none."""
WHOLE_UP_TO = 128
"""With more keys than this no number can be read: weights are reduced to this many cells as they come."""


class ScriptWatcher:
    """Watches all modules of a script."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.memory = Memory()
        self._tries = MOST_TRIES if session.attention else 0
        self._nan = session.nan
        self._forwards = 0

    def wants(self, module: nn.Module) -> bool:
        return True

    def recorder(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ScriptRecorder:
        if not self._tries and not self._nan:
            return ScriptRecorder(Recording(module))
        inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        recording = Recording(module, capture=_capture(inputs) if self._tries else None)
        recorder = self._nan_recorder(recording) if self._nan else ScriptRecorder(recording)
        if recording.capture is not None:
            recording.capture.begin(recorder.serial, inputs)
        return recorder

    def ended(self, recorder: ScriptRecorder, error: BaseException | None) -> None:
        if recorder.recording.capture is None or not self._tries:
            return
        self._tries -= 1
        if recorder.recording.capture.found:
            self._tries = 0
            self._show_heads(recorder.recording)
        elif not self._tries:
            self._session.console.line(f"--attention: none was found in the first {MOST_TRIES} forwards")

    def finished(self) -> None:
        """The script is over."""
        if self._tries:
            tried = MOST_TRIES - self._tries
            forwards = "1 forward" if tried == 1 else f"{tried} forwards"
            said = f"none was found in {forwards}" if tried else "no module was called"
            self._session.console.line(f"--attention: {said}")

    def _show_heads(self, recording: Recording) -> None:
        from attnscope.attention import build_attention
        from attnscope.render.show import weights_lines
        from attnscope.runner.explain import trace_of
        from attnscope.runner.memory import name_arguments
        from attnscope.steps import Steps

        name_arguments(recording)
        steps = Steps(recording)
        attention = build_attention(recording, steps)
        self._session.heads = trace_of(recording, steps.rows, attention)
        name = f"attention of the first forward: {type(recording.root).__name__}"
        self._session.draw(lambda style: weights_lines(style, attention, name))

    def _nan_recorder(self, recording: Recording) -> ScriptRecorder:
        from attnscope.runner.nan import NanRecorder

        recorder = NanRecorder(recording, self._session.program.name, self._forwards, self._found_nan)
        self._forwards += 1
        return recorder

    def _found_nan(self, report: Report) -> None:
        self._nan = False
        self._session.say(report)


def _capture(inputs: Sequence[Tensor]) -> Capture:
    from attnscope.pooling import pool, pool_size
    from attnscope.recorder.capture import Capture

    def reduce(weights: Any) -> Any:
        factor = pool_size(max(weights.shape[-2:]), WHOLE_UP_TO)
        return pool(weights, factor, factor, 4)

    longest = max((size for tensor in inputs for size in tensor.shape[:2]), default=0)
    return Capture("weights") if longest <= WHOLE_UP_TO else Capture("pooled", pool=reduce)
