"""`attnscope run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attnscope.cli.options.output import Color, Debug, Output, Width
from attnscope.cli.parsing import Command as PlainCommand
from attnscope.errors import UsageError
from attnscope.runner.program import Program, split

EXAMPLES = ("attnscope run samples/train.py", "attnscope run --nan samples/train.py --mended")

_WITH_VALUE = frozenset({"-o", "--output", "--width", "--color"})


class Command(PlainCommand):
    """Ends its own options where the script begins: what follows belongs to the script, `--help` too."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "SCRIPT.py|-m MODULE", "[ARGS]..."]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, rest, module = split(args, _WITH_VALUE)
        ctx.meta["attnscope.run"] = (rest, module)
        return super().parse_args(ctx, own)


def run(
    context: typer.Context,
    module: Annotated[
        str | None,
        typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does."),
    ] = None,
    attention: Annotated[
        bool, typer.Option("--attention", help="Show the heads of the first forward that has attention.")
    ] = False,
    nan: Annotated[
        bool, typer.Option("--nan", help="Stop at the first step that makes a nan; show where it came from.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write what is said to a .json, .svg, .html or .txt file."
        ),
    ] = None,
    width: Width = None,
    color: Color = None,
    debug: Debug = False,
) -> None:
    """Run a script unchanged; explain the exception that leaves a module, with the steps before it.

    Options come before SCRIPT; everything after it belongs to the script, which keeps its standard output and
    its exit code. What attnscope says goes to standard error.
    """
    rest, is_module = context.meta["attnscope.run"]
    if not rest:
        missing = "-m names no module" if module is not None else "SCRIPT is missing"
        raise UsageError(missing, "try attnscope run --help")
    to = Output(None, output, width, color).destination()

    from attnscope.cli.boundary import restore_streams
    from attnscope.runner.console import Console
    from attnscope.runner.session import Session

    restore_streams()

    session = Session(
        Program(rest[0], tuple(rest[1:]), is_module),
        attention=attention,
        nan=nan,
        output=to.path,
        debug=debug,
        console=Console(to.width, to.color),
    )
    raise SystemExit(session.run())
