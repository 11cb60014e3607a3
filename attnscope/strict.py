"""A fault of attnscope's own, met while somebody else's module is looked at: passed over, or raised.

A user's run goes on, and what could not be done is said. Where `ATTNSCOPE_STRICT` is set in the environment
(in every test, and in the processes that tests start) such a fault is raised, so that none can hide.
"""

from __future__ import annotations

import os

SWITCH = "ATTNSCOPE_STRICT"


def strict() -> bool:
    """Whether faults of our own are raised."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def passed_over(error: BaseException) -> None:
    """To be called where a fault of our own is caught: raises it again where that is asked for."""
    if strict():
        raise error
