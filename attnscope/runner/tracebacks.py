"""Tracebacks as they would be without attnscope."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import zip_longest
from types import TracebackType

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_RECORDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "recorder", "mode.py")
_DISPATCH = os.path.join("torch", "overrides.py")
_MOST_CHAINED = 50


def is_own(filename: str) -> bool:
    """Whether a file is one of those that stand between a script and PyTorch while it is watched."""
    return filename.startswith(_HERE) or filename == _RECORDER


def stripped(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without attnscope's frames, and without those that only led to them.

    While a mode is on, a Python function of PyTorch's hands itself over (`handle_torch_function`) and is
    called again from the handler; without it there would be its second frame alone.
    """
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    if not any(is_own(entry.tb_frame.f_code.co_filename) for entry in entries):
        return entries[0] if entries else None
    kept: list[TracebackType] = []
    handler = False
    for entry in entries:
        code = entry.tb_frame.f_code
        if is_own(code.co_filename):
            handler = handler or code.co_name == "__torch_function__"
            continue
        if handler:
            handler = False
            if kept and _hands_over(kept[-1]) and len(kept) > 1 and kept[-2].tb_frame.f_code is code:
                del kept[-2:]
            elif kept and kept[-1].tb_frame.f_code is code:
                del kept[-1]
        kept.append(entry)
    for entry, following in zip_longest(kept, kept[1:]):
        if entry.tb_next is not following:
            entry.tb_next = following
    return kept[0] if kept else None


def _hands_over(entry: TracebackType) -> bool:
    code = entry.tb_frame.f_code
    return code.co_name == "handle_torch_function" and code.co_filename.endswith(_DISPATCH)


def chained(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that it was raised from or while handling, each once."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < _MOST_CHAINED:
        seen.add(id(current))
        yield current
        cause = current.__cause__
        current = cause if cause is not None or current.__suppress_context__ else current.__context__


def clean(error: BaseException) -> None:
    """Strip the tracebacks of an exception and of all that it is chained to."""
    for one in chained(error):
        one.__traceback__ = stripped(one.__traceback__)
