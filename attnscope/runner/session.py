"""One run of a script: watch it, explain what leaves it, end as it ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attnscope.diagnostic import Report
from attnscope.errors import UsageError
from attnscope.runner.console import Console
from attnscope.runner.imports import when_imported
from attnscope.runner.program import Program
from attnscope.runner.tracebacks import clean
from attnscope.runner.warned import attribute_to_source

if TYPE_CHECKING:
    from attnscope.render.show import Lines, Style
    from attnscope.schema import Trace


@dataclass
class Session:
    """A script and what is to be said of it. `output` is a file that takes all that attnscope says."""

    program: Program
    attention: bool = False
    nan: bool = False
    output: Path | None = None
    debug: bool = False
    console: Console = field(default_factory=Console)
    reports: list[Report] = field(default_factory=list)
    drawings: list[Callable[[Style], Lines]] = field(default_factory=list)
    heads: Trace | None = None
    _watcher: Any = None

    def run(self) -> int:
        """Run the script to its end and return its exit code; its own SystemExit passes.

        Raises UsageError, before anything ran, when there is no such script.
        """
        start = self.program.prepare()
        when_imported("torch", self._watch)
        attribute_to_source()
        threading.excepthook = self._in_thread
        code = 0
        failed: BaseException | None = None
        try:
            try:
                start()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                failed = error
            finally:
                self._finished()
            if failed is not None:  # here and not above: what a hook raises has no context
                code = 1
                self._uncaught(failed)
        except SystemExit as end:
            code = _exit_code(end)
            raise
        except KeyboardInterrupt:
            code = 130
            raise
        finally:
            failed = None
            self._write(code)
        return code

    def _watch(self) -> None:
        from attnscope.runner.calls import install
        from attnscope.runner.scripts import ScriptWatcher

        self._watcher = ScriptWatcher(self)
        install(self._watcher)

    def _finished(self) -> None:
        if self._watcher is not None:
            self._watcher.finished()

    # -- what leaves the script ----------------------------------------------------------------------------

    def _uncaught(self, error: BaseException) -> None:
        clean(error)
        if getattr(error, "attnscope_stop", False) is not True:
            self._explain(error)
            show_exception(type(error), error, error.__traceback__)

    def _in_thread(self, failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None:
            clean(failed.exc_value)
            if getattr(failed.exc_value, "attnscope_stop", False) is True:
                return
            self._explain(failed.exc_value)
            failed = threading.ExceptHookArgs(
                (failed.exc_type, failed.exc_value, failed.exc_value.__traceback__, failed.thread)
            )
        threading.__excepthook__(failed)

    def _explain(self, error: BaseException) -> None:
        if self._watcher is None:  # without torch there is no module
            return
        try:
            from attnscope.runner.explain import explain

            report = explain(error, self.program.name, self._watcher.memory)
            if report is not None:
                self.say(report)
        except Exception as own:
            if self.debug:
                sys.__excepthook__(type(own), own, own.__traceback__)
            self.console.line(f"internal error while explaining: {type(own).__name__}: {str(own)[:200]}")

    # -- what is said --------------------------------------------------------------------------------------

    def say(self, report: Report) -> None:
        """Print a report, or keep it for the file."""
        _flush(sys.stdout)
        self.reports.append(report)
        from attnscope.render.show import run_lines

        self.draw(lambda style: run_lines(style, report))

    def draw(self, drawing: Callable[[Style], Lines]) -> None:
        """Print a drawing, or keep it for the file."""
        if self.output is None:
            self.console.say(drawing)
        else:
            self.drawings.append(drawing)

    def _write(self, code: int) -> None:
        if self.output is None:
            return
        from attnscope.render.save import write

        def draw(style: Style) -> Lines:
            return [line for drawing in self.drawings for line in drawing(style)]

        try:
            write(
                self.output,
                self._whole(code),
                command="run",
                draw=draw if self.drawings else None,
                width=self.console.width,
                title="attnscope run",
            )
        except UsageError as error:  # the exit code is the script's
            self.console.line(str(error))

    def _whole(self, code: int) -> Report:
        first = self.reports[0] if self.reports else Report(self.program.name, ())
        findings = tuple(finding for report in self.reports for finding in report.findings)
        notes = tuple(dict.fromkeys(note for report in self.reports for note in report.notes))
        trace = first.trace
        if self.heads is not None:
            attention = self.heads.attention
            trace = replace(trace, attention=attention) if trace is not None else self.heads
        first = replace(first, trace=trace)
        return replace(first, findings=findings, notes=notes, extra={**first.extra, "exit_code": code})


def show_exception(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """What Python does with an exception that nobody caught."""
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, traceback
    hook = sys.excepthook
    try:
        hook(kind, error, traceback)
    except SystemExit:
        raise
    except BaseException as failed:
        clean(failed)
        stream = sys.stderr
        if stream is not None:
            stream.write("Error in sys.excepthook:\n")
            sys.__excepthook__(type(failed), failed, failed.__traceback__)
            stream.write("\nOriginal exception was:\n")
            sys.__excepthook__(kind, error, traceback)
    _flush(sys.stderr)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (AttributeError, OSError, ValueError):
        return


def _exit_code(end: SystemExit) -> int:
    """The exit code that Python makes of `sys.exit(…)`."""
    if end.code is None:
        return 0
    return end.code & 0xFF if isinstance(end.code, int) else 1
