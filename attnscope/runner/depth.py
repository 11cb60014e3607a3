"""Room on the stack for the frames that watching adds, while a module runs and no longer.

A call of a module takes five frames where it took four: what is nested as deep as Python allows must still
run, and a recursion without end must still end about as deep as it would.
"""

from __future__ import annotations

import os
import sys
import threading

_lock = threading.Lock()
_running = 0
_limits = (0, 0)


def _new_lock() -> None:
    """A process may be forked while another thread holds the lock; other threads do not go on in it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def deeper() -> None:
    """An outermost call begins."""
    global _running, _limits
    with _lock:
        _running += 1
        if _running == 1:
            limit = sys.getrecursionlimit()
            _limits = (limit, limit * 5 // 4)
            sys.setrecursionlimit(_limits[1])


def shallower() -> None:
    """An outermost call is over; a limit that the script has set meanwhile stays."""
    global _running
    with _lock:
        _running -= 1
        if _running == 0 and sys.getrecursionlimit() == _limits[1]:
            try:
                sys.setrecursionlimit(_limits[0])
            except RecursionError:  # called from deeper than the limit allows: leave it
                return
