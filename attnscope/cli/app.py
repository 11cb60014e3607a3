"""The table of commands, and the application that is made of it.

A new command is one new file beside this one, with a function `run` and `EXAMPLES`, and one line in the
table. Files of commands are imported when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import attnscope
from attnscope.cli.options import flat
from attnscope.cli.parsing import ARGS, Command
from attnscope.errors import UsageError
from attnscope.text import unknown

SEE, DIAGNOSE = "See", "Diagnose"

COMMANDS = {
    "trace": (SEE, "Run an attention layer, or your own module, and show every step."),
    "reshape": (SEE, "Follow every element through a chain of views."),
    "mask": (SEE, "Draw a mask, and the line of torch that builds it."),
    "tokens": (SEE, "Show a text as tokens."),
    "layers": (SEE, "List the built-in attention layers."),
    "check": (DIAGNOSE, "Explain why a module crashes, and prove its silent faults."),
    "run": (DIAGNOSE, "Run a script unchanged; explain a crash inside a module."),
    "compare": (DIAGNOSE, "Tell whether two modules are the same function."),
    "explain": (DIAGNOSE, "Say what a diagnostic code means."),
}

EXAMPLES = ('attnscope trace "Your journey starts with one step"', "attnscope mask --len 8")

_HELP_FLAGS = {"help_option_names": ["-h", "--help"]}


class _Commands(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[ARGS] = list(args)
        return list(super().parse_args(ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from attnscope.cli.help import help_text, panels_of
        from attnscope.render.help import Panel, Row

        commands = [
            Panel(title, tuple(Row(name, text) for name, (panel, text) in COMMANDS.items() if panel == title))
            for title in (SEE, DIAGNOSE)
        ]
        panels = [*commands, *panels_of(self.get_params(ctx), ctx)]
        formatter.write(help_text(self, ctx, panels, EXAMPLES))
        ctx.color = True

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            return args[0], load(args[0]), args[1:]
        error = unknown("command", args[0], COMMANDS)
        if " " in args[0]:
            error = UsageError("there is no command before the text", "try attnscope trace TEXT")
        raise error


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"attnscope {attnscope.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
) -> None:
    """A microscope for causal attention: tokens, masks, the weights of every head, and one row for every
    tensor step of a built-in attention layer or of your own module.

    `attnscope COMMAND --help` says more of each; `attnscope explain` lists what is diagnosed. Exit codes:
    0 fine, 1 a fault was found, 2 the command line or an input is wrong.
    """


def build() -> Any:
    """The application, ready to parse."""
    application = _new(completion=True)
    application.callback(cls=_Commands, context_settings=_HELP_FLAGS)(_root)
    return typer.main.get_command(application)


def load(name: str) -> Any:
    """The command called `name` alone, ready to parse."""
    module = import_module(f"attnscope.cli.{name}")
    application = _new()
    kind = getattr(module, "Command", Command)
    application.command(name, cls=kind, context_settings=_HELP_FLAGS)(flat(module.run))
    command = typer.main.get_command(application)
    command.EXAMPLES = module.EXAMPLES  # type: ignore[attr-defined]
    return command


def _new(completion: bool = False) -> typer.Typer:
    # Help is drawn by `cli/help.py`: typer's own rich help would load a Markdown parser for it.
    return typer.Typer(add_completion=completion, rich_markup_mode=None, pretty_exceptions_enable=False)
