"""Warnings carry the script's lines, not those of the recorder that stands between the script and PyTorch.

Python attributes a warning to the frame that called, and shows it once for each such place. What comes with
the recorder's place is issued again with the place of the source.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from attnscope.runner.tracebacks import is_own

_MODULES = ("attnscope.recorder", "attnscope.runner.recorder", "attnscope.runner.calls")


def attribute_to_source() -> None:
    """From now on, for as long as the process lives."""
    show = warnings._showwarnmsg  # type: ignore[attr-defined]

    def _showwarnmsg(message: Any) -> None:
        frame = _source_of(message) if is_own(str(message.filename)) else None
        if frame is None:
            show(message)
            return
        _forget(message)
        scope = frame.f_globals
        warnings.warn_explicit(
            message.message,
            message.category,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=scope.get("__name__") or "<unknown>",
            registry=scope.setdefault("__warningregistry__", {}),
            source=message.source,
        )

    warnings._showwarnmsg = _showwarnmsg  # type: ignore[attr-defined]


def _source_of(message: Any) -> FrameType | None:
    """The frame that made the call on whose behalf the recorder stands at the place of the warning."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == message.filename and frame.f_lineno == message.lineno:
            break
        frame = frame.f_back
    while frame is not None and _leads_to_recorder(frame):
        frame = frame.f_back
    return frame


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
