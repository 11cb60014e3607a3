"""Lines on standard error: what was wrong, and what is worth knowing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Literal

Kind = Literal["error", "warning", "internal error"]

_LOOKS = {"error": "\x1b[1;31m", "internal error": "\x1b[1;31m", "warning": "\x1b[1;33m"}
_PLAIN = "\x1b[0m"


def say(command: str, message: str, kind: Kind = "error", args: Sequence[str] = ()) -> None:
    """`attnscope mask: error: …` in one line, its kind coloured on a terminal.

    `args`, the words of the command line, may have `--color never`.
    """
    from attnscope.text import visible

    with suppress(OSError, ValueError):  # standard error may be closed too
        word = f"{kind}:"
        if _colored(args):
            word = f"{_LOOKS[kind]}{word}{_PLAIN}"
        print(f"{command}: {word} {visible(message)}", file=sys.stderr)
        sys.stderr.flush()


def warn(command: str, message: str) -> None:
    """A line that does not end the command `attnscope {command}`."""
    say(f"attnscope {command}", message, "warning")


def _colored(args: Sequence[str]) -> bool:
    """As on standard output, but `--color always` is said of the result alone."""
    from attnscope.render.terminal import wants_color

    never = "--color=never" in args or ("--color", "never") in pairwise(args)
    return wants_color(sys.stderr, "never" if never else "auto", os.environ)
