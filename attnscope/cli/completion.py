"""What a shell asks at TAB: commands, options, and the values that an option knows."""

from __future__ import annotations

import os

from attnscope.errors import UsageError


def complete(variable: str) -> int:
    """Print what could stand next; the shell's script says in the environment what was typed."""
    from typer import completion

    from attnscope.cli.app import build

    completion.completion_init()  # type: ignore[attr-defined]
    try:
        return completion.shell_complete(build(), {}, "attnscope", variable, os.environ[variable])
    except UsageError:  # a command that there is not: nothing can follow it
        return 0
