"""The outer boundary: whatever is raised inside becomes at most one line on standard error and an exit code.

Standard output is written whole or not at all: every command draws its result before it prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attnscope.errors import UsageError

if TYPE_CHECKING:
    from attnscope.cli.messages import Kind

OK, USAGE, INTERNAL, NO_OUTPUT, INTERRUPTED, PIPE_CLOSED = 0, 2, 70, 74, 130, 141
"""Exit codes: those of sysexits.h for an internal error and for failing output; 128 and more for signals."""


COMPLETION = "_ATTNSCOPE_COMPLETE"
"""Set by what `--install-completion` installs."""


def run(args: Sequence[str]) -> int:
    """Run the command line `args` (without the program's name) and return the exit code."""
    try:
        _prepare_streams()
        code = _dispatch(list(args) or ["--help"])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return PIPE_CLOSED
    except UsageError as error:
        if error.steps:
            _show_steps(error)
        _say(args, str(error))
        return USAGE
    except Exception as error:
        if _debugging(args):
            raise
        return _unexpected(args, error)


def _dispatch(args: list[str]) -> int:
    # Not the application's own `main`: it would print boxes and usage lines, and exit by itself.
    import typer

    from attnscope.cli.app import COMMANDS, build, load

    if os.environ.get(COMPLETION):  # the shell asks what could stand next
        from attnscope.cli.completion import complete

        return complete(COMPLETION)
    complaint: Any = typer.BadParameter.__mro__[1]  # UsageError; where it lives depends on typer's version

    direct = args[0] in COMMANDS  # else --help, --version, or a command behind --debug: the slower way
    command = load(args[0]) if direct else build()
    name, rest = (f"attnscope {args[0]}", args[1:]) if direct else ("attnscope", args)
    try:
        with command.make_context(name, rest) as context:
            command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except complaint as error:
        raise _readable(error, name) from None
    return OK


def _readable(error: Any, command: str) -> UsageError:
    """A complaint of the parser's in the form of all others: what was wrong, what would work."""
    from attnscope.cli.words import reworded

    return reworded(error, command)


def _command(args: Sequence[str]) -> str:
    """`attnscope trace` when that is what was asked for; the name in front of a message."""
    from attnscope.cli.app import COMMANDS

    name = next((arg for arg in args if not arg.startswith("-")), "")
    return f"attnscope {name}" if name in COMMANDS else "attnscope"


def _debugging(args: Sequence[str]) -> bool:
    options = args[: args.index("--")] if "--" in args else args
    return "--debug" in options


def _unexpected(args: Sequence[str], error: Exception) -> int:
    if isinstance(error, OSError) and getattr(error, "writing_stdout", False):
        _discard_stdout()
        _say(args, f"standard output cannot be written: {error.strerror or error}")
        return NO_OUTPUT
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        _say(args, "there is not enough memory for this; smaller sizes or a shorter text would work")
        return INTERNAL
    reason = str(error).partition("\n")[0]
    _say(
        args,
        f"{type(error).__name__}: {reason[:200]}; please report it, with what the same command says "
        "with --debug",
        "internal error",
    )
    return INTERNAL


def _show_steps(error: UsageError) -> None:
    """The tensor steps up to a crash that hangs on a guess: standard output is for results alone."""
    from attnscope.render import show
    from attnscope.render.shapes import draw_shapes

    show.say(lambda style: draw_shapes(style, error.steps), sys.stderr)


def _say(args: Sequence[str], message: str, kind: Kind = "error") -> None:
    from attnscope.cli.messages import say

    say(_command(args), message, kind, args)


def _prepare_streams() -> None:
    """No character of a user's may make a write fail, and a closed stream swallows what is written."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as we do
            continue
        reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            _errors[name] = stream.errors
            reconfigure(errors="backslashreplace")


_errors: dict[str, str] = {}


def restore_streams() -> None:
    """Standard output and error as Python made them: a script must see what it would see alone."""
    for name, errors in _errors.items():
        stream: Any = getattr(sys, name)
        stream.reconfigure(errors=errors)
    _errors.clear()


def _discard_stdout() -> None:
    """Python flushes standard output once more when it ends; let that go nowhere."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
