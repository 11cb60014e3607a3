"""`with attnscope.watch(model):` explains a crash inside it, in a test, a notebook or a script."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from torch import nn

from attnscope.diagnostic import Report
from attnscope.recorder.recording import Recording
from attnscope.runner.calls import aside, install, uninstall
from attnscope.runner.console import Console
from attnscope.runner.memory import Memory
from attnscope.runner.recorder import ScriptRecorder
from attnscope.runner.tracebacks import clean
from attnscope.sandbox.guard import walk
from attnscope.schema import Later


class Watch:
    """Watches the forwards of `module` (None: of every module) while it is open.

    An exception that leaves one of them, in forward or in backward, is explained on standard error, and goes
    on unchanged. `report` is then what was said; without a crash it has no findings and the trace of the last
    forward (None before the block has ended).
    """

    def __init__(self, module: nn.Module | None = None) -> None:
        self.report: Report | None = None
        self._module = module
        self._ids = frozenset(id(child) for _, child in walk(module)) if module is not None else None
        self.memory = Memory()
        self._compiled: list[tuple[dict[str, Any], Any]] = []

    # -- as a watcher of calls -----------------------------------------------------------------------------

    def wants(self, module: nn.Module) -> bool:
        return self._ids is None or id(module) in self._ids

    def recorder(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ScriptRecorder:
        return ScriptRecorder(Recording(module))

    def ended(self, recorder: ScriptRecorder, error: BaseException | None) -> None:
        return

    # -- as a context --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.memory = Memory()  # of what runs in this block
        install(self)
        self._set_compiled_aside()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        uninstall(self)
        for state, compiled in self._compiled:
            state["_compiled_call_impl"] = compiled
        self._compiled.clear()
        try:
            self._report(error)
        except Exception as own:
            said = f"internal error while explaining: {type(own).__name__}: {str(own)[:200]}"
            Console().line(said)

    def _set_compiled_aside(self) -> None:
        """What `module.compile()` made before runs without the mode too."""
        for _, child in walk(self._module) if self._module is not None else ():
            compiled = vars(child).get("_compiled_call_impl")
            if compiled is not None:
                self._compiled.append((vars(child), compiled))
                vars(child)["_compiled_call_impl"] = aside("compiled", compiled)

    def _report(self, error: BaseException | None) -> None:
        from attnscope.runner.explain import explain, trace_of
        from attnscope.steps import Steps

        target = type(self._module).__name__ if self._module is not None else "watch"
        if error is not None:
            clean(error)
            report = explain(error, target, self.memory)
            if report is not None:
                self.report = report
                Console().report(report)
            return
        kept = self.memory.forwards[-1] if self.memory.forwards else None
        self.report = Report(target, ())
        if kept is not None:
            whole = kept.restored()
            trace = trace_of(whole, Later(lambda: tuple(Steps(whole).rows)))
            self.report = Report(target, (), trace=trace)
