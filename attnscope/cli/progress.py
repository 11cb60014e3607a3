"""What takes its time says so: one line on a terminal's standard error, gone when the work is done."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import IO

AFTER = 2.0
"""Seconds before anything is said: what is quick needs no word."""

EVERY = 0.5


class Progress:
    """`with Progress("check") as progress: … progress.say("backward")`; silent where no one looks on."""

    def __init__(self, command: str, stream: IO[str] | None = None) -> None:
        self._command = command
        self._what = ""
        self._stream = stream or sys.stderr  # now: the user's code may put another in its place
        self._began = time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, what: str) -> None:
        """What is being done; an empty text leaves what was said before."""
        self._what = what or self._what

    def __enter__(self) -> Progress:
        if _is_watched(self._stream):
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _tell(self) -> None:
        from attnscope.text import visible

        wait, said = AFTER, False
        while not self._done.wait(wait):
            wait, said = EVERY, True
            seconds = int(time.monotonic() - self._began)
            self._write(visible(f"attnscope {self._command}: {self._what or 'at work'} ({seconds} s)"))
        if said:
            self._write("")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(self._stream.fileno()).columns or 80
            self._stream.write(f"\r\x1b[K{text[: columns - 1]}")
            self._stream.flush()


def _is_watched(stream: IO[str]) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    except (AttributeError, ValueError):
        return False
