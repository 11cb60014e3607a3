"""Warnings carry the script's lines, not those of the recorder that stands between the script and PyTorch.

Python attributes a warning to the frame that called, and shows it once for each such place. What comes with
the recorder's place is issued again with the place of the source.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType
from typing import Any

from attnscope.runner.tracebacks import is_own

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")
_MODULES = ("attnscope.recorder.mode", "attnscope.runner.recorder", "attnscope.runner.calls")


def attribute_to_source() -> None:
    """From now on, for as long as the process lives."""
    show = warnings._showwarnmsg  # type: ignore[attr-defined]

    def _showwarnmsg(message: Any) -> None:
        frame, outside = _frame_of(message)
        if not outside and (frame is None or not is_own(frame.f_code.co_filename)):
            show(message)
            return
        while frame is not None and not outside and _leads_to_recorder(frame):
            frame = frame.f_back
        _forget(message)
        # Where there is no caller any more, Python names `sys`.
        place = ("sys", 1) if outside or frame is None else (frame.f_code.co_filename, frame.f_lineno)
        scope = vars(sys) if outside or frame is None else frame.f_globals
        warnings.warn_explicit(
            message.message,
            message.category,
            *place,
            module=scope.get("__name__") or "<unknown>",
            registry=scope.setdefault("__warningregistry__", {}),
            source=message.source,
        )

    warnings._showwarnmsg = _showwarnmsg  # type: ignore[attr-defined]


def _frame_of(message: Any) -> tuple[FrameType | None, bool]:
    """The frame that a warning names, and whether it stands above the script, among what started it."""
    frame: FrameType | None = sys._getframe(2)
    outside = False
    while frame is not None:
        name = frame.f_code.co_filename
        outside = outside or name == _PROGRAM
        if name == message.filename and frame.f_lineno == message.lineno:
            return frame, outside
        frame = frame.f_back
    return None, False


def _leads_to_recorder(frame: FrameType) -> bool:
    code = frame.f_code
    if is_own(code.co_filename):
        return True
    if code.co_name == "handle_torch_function":
        return True
    back = frame.f_back
    # A Python function of PyTorch's that handed itself over stands above its own second call.
    return back is not None and "torch" in code.co_filename and _handing(frame)


def _handing(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(("functional.py", "_tensor.py", "_jit_internal.py"))


def _forget(message: Any) -> None:
    """The warning was not shown yet: neither the recorder's place nor `once` may remember it."""
    for name in _MODULES:
        module = sys.modules.get(name)
        if module is not None:
            vars(module).pop("__warningregistry__", None)
    text = str(message.message)
    once: dict[Any, Any] = vars(warnings)["onceregistry"]
    once.pop((text, message.category), None)
