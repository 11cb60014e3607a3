"""attnscope: a command-line microscope for causal attention.

`trace`, `mask`, `reshape`, `check`, `compare` and `watch` are the commands for Python. Importing this package
imports the standard library alone; torch comes with the first call that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from attnscope.api import assert_sound, check, compare, mask, reshape, trace, watch

__all__ = ["__version__", "assert_sound", "check", "compare", "mask", "reshape", "trace", "watch"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from attnscope import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
