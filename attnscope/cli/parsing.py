"""From the words of a command line to the arguments of a command's function.

typer declares the options and writes the help, its parser tells options from values. The values are turned
into numbers here: typer's own way imports pydantic for it, which costs more than all of `attnscope mask`, and
its complaints are not in this program's words.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from typer.core import TyperCommand

from attnscope.errors import UsageError
from attnscope.text import visible

ARGS = "attnscope.args"
"""The key in a context's `meta` for the words that were parsed: an error message needs them."""


class Command(TyperCommand):
    """A command whose values are converted by the types of its function's parameters."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from attnscope.cli.help import help_text, panels_of

        formatter.write(help_text(self, ctx, panels_of(self.get_params(ctx), ctx), self.EXAMPLES))
        ctx.color = True  # it was decided while drawing: the parser's printing takes nothing off

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[ARGS] = list(args)
        if ctx.resilient_parsing:  # for completion: the parser's own way, which fails at nothing
            return list(super().parse_args(ctx, args))
        _refuse_glued_text(self, ctx, args)
        found: dict[str, Any]
        rest: list[str]
        found, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        types_of = _types(self.callback)
        ours = [parameter for parameter in self.get_params(ctx) if parameter.name in types_of]
        for parameter in self.get_params(ctx):
            if parameter not in ours and parameter.name in found:  # --help: comes before a complaint
                parameter.handle_parse_result(ctx, found, rest)
        if rest:
            ctx.fail(f"unexpected extra arguments ({rest[0]})")
        for parameter in ours:
            name = str(parameter.name)
            value = found.get(name)
            if value is not None and isinstance(value, str | bool | int | list | tuple):
                value = _converted(types_of[name], value, option_name(parameter))
            else:  # not given
                value = parameter.get_default(ctx)
            ctx.params[name] = value
        ctx.args = []
        return []


def _refuse_glued_text(command: Any, ctx: Any, args: list[str]) -> None:
    """`-one step` is a text that begins with a dash, not a file `ne step` for `-o`."""
    if takes_text(command):
        for word in args[: args.index("--")] if "--" in args else args:
            if word.startswith("-o") and " " in word:
                raise behind_dashes(word, ctx)


def takes_text(command: Any) -> bool:
    return any(parameter.name == "text" for parameter in command.params)


def behind_dashes(word: str, ctx: Any) -> UsageError:
    """What is said of a text that was taken for an option."""
    shown = _short(word)
    quoted = '"' + shown.replace('"', '\\"') + '"'
    return UsageError(
        f"unknown option {shown}", f"a text that begins with - goes behind --: {ctx.command_path} -- {quoted}"
    )


@cache
def _types(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each parameter, `Optional` and `Annotated` taken off."""
    hints = typing.get_type_hints(function)
    hints.pop("return", None)
    return {name: _bare(hint) for name, hint in hints.items()}


def _bare(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(part for part in typing.get_args(hint) if part is not type(None))
    return hint


def _converted(kind: Any, value: Any, option: str) -> Any:
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        return [_converted(item, one, option) for one in value]
    if kind is int:
        try:
            return int(value)
        except ValueError:
            raise UsageError(f"{option} must be a whole number, not `{_short(value)}`") from None
    if kind is float:
        try:
            return float(value)
        except ValueError:
            raise UsageError(f"{option} must be a number, not `{_short(value)}`") from None
    return value


def _short(value: str) -> str:
    return visible(value if len(value) <= 40 else value[:39] + "…")


def option_name(parameter: Any) -> str:
    """`--len` for an option, `TEXT` for an argument."""
    if getattr(parameter, "param_type_name", "") == "option":
        return max(map(str, parameter.opts), key=len)
    return str(parameter.name or "an argument").upper()
