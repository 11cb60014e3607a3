"""The parser's complaints in this program's words: one line, what was wrong and what would work."""

from __future__ import annotations

from typing import Any

from attnscope.cli.parsing import ARGS, behind_dashes, option_name, takes_text
from attnscope.errors import UsageError
from attnscope.text import visible


def reworded(error: Any, command: str) -> UsageError:
    """The UsageError for an exception of the parser's (typer's own, or click's under older versions).

    `command` is what was being parsed, `attnscope mask`.
    """
    context = getattr(error, "ctx", None)
    help_hint = f"try {command} --help"
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return _no_such_option(error, context, help_hint)
    if kind == "MissingParameter":
        name = option_name(error.param)
        return UsageError(f"{name} is missing", help_hint)
    message = _first_line(error.message).rstrip(".")
    if kind == "BadOptionUsage":
        return UsageError(_lower(message), help_hint)
    parameter = getattr(error, "param", None)
    if parameter is not None:
        return UsageError(f"{option_name(parameter)}: {_lower(message)}", help_hint)
    if "unexpected extra argument" in message:
        extra = context.meta.get(ARGS, []) if context is not None else []
        return _extra(extra, context, help_hint)
    return UsageError(_lower(message), help_hint)


def _no_such_option(error: Any, context: Any, help_hint: str) -> UsageError:
    name = error.option_name
    args = context.meta.get(ARGS, []) if context is not None else []
    given = next((arg for arg in args if _caused(arg, name)), name)
    shown = visible(given if len(given) <= 40 else given[:39] + "…")
    a_text = context is not None and takes_text(context.command)
    if error.possibilities and not (a_text and " " in given):
        near = " or ".join(sorted(error.possibilities))
        return UsageError(f"unknown option {shown}", f"did you mean {near}?")
    if a_text:
        return behind_dashes(given, context)
    return UsageError(f"unknown option {shown}", help_hint)


def _caused(arg: str, name: str) -> bool:
    """Whether the parser found option `name` in the argument `arg` (`-f` also stands inside `-xf`)."""
    if arg.partition("=")[0] == name or arg.startswith(name):
        return True
    return len(name) == 2 and arg[:1] == "-" and arg[:2] != "--" and name[1] in arg


def _extra(args: list[str], context: Any, help_hint: str) -> UsageError:
    words = [arg for arg in args if not arg.startswith("-")]
    if context is not None and takes_text(context.command) and len(words) > 1:
        return UsageError("more than one text was given", "put the text in quotes")
    return UsageError("there are more arguments than the command takes", help_hint)


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
