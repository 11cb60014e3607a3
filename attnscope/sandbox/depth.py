"""Room on the stack for the frames that watching adds, while a module runs and no longer.

A call of a module takes a frame or more than it did: what is nested as deep as Python allows must still run,
and a recursion without end must still end about as deep as it would. The limit belongs to the process: the
last thread that leaves puts it back.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_running = 0
_before, _now = 0, 0


def _new_lock() -> None:
    """A process may be forked while another thread holds the lock; other threads do not go on in it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def deeper(times: float) -> None:
    """A watched call begins; the stack may be so many times as deep."""
    global _running, _before, _now
    with _lock:
        if not _running:
            _before = _now = sys.getrecursionlimit()
        _running += 1
        if _before * times > _now:
            _now = int(_before * times)
            sys.setrecursionlimit(_now)


def shallower() -> None:
    """A watched call is over; a limit that the script has set meanwhile stays."""
    global _running
    with _lock:
        _running -= 1
        if not _running and sys.getrecursionlimit() == _now:
            _set(_before)


@contextmanager
def kept() -> Iterator[None]:
    """The limit is afterwards what it was, whatever the code inside set."""
    with _lock:
        before = _before if _running else sys.getrecursionlimit()
    try:
        yield
    finally:
        with _lock:
            wanted = _now if _running else before
            if sys.getrecursionlimit() != wanted:
                _set(wanted)


def _set(limit: int) -> None:
    try:
        sys.setrecursionlimit(limit)
    except RecursionError:  # called from deeper than the limit allows: leave it
        return
