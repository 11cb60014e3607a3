"""A limit to the time of one try: a user's `forward` that never ends must not take the loader with it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


class TookTooLongError(BaseException):
    """Raised inside the user's code; no `except Exception` of theirs catches it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TookTooLongError in the body after so many seconds, and each second again should it be caught.

    It works in the main thread where there are interval timers (POSIX); elsewhere there is no limit. One
    step of compiled code is not interrupted. A timer and a handler that were there go on afterwards.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:
            raise TookTooLongError(f"it did not end within {seconds:g} s")

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
        if left:
            remaining = max(left - (time.monotonic() - started), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, remaining, interval)
