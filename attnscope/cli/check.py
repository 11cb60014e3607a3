"""`attnscope check`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from attnscope.cli.options.codes import Codes
from attnscope.cli.options.output import Output, format_option, keep_stdout_apart, output_option, send
from attnscope.cli.options.target import Own, Weights
from attnscope.errors import UsageError

if TYPE_CHECKING:
    from attnscope.diagnostic import Report, Survey

EXAMPLES = (
    "attnscope check multihead",
    "attnscope check stacked torch.nn:MultiheadAttention --arg num_heads=2",
)


@dataclass(frozen=True)
class _Output(Output):
    COMMAND: ClassVar[str] = "check"

    format: Annotated[str | None, format_option("check")] = None
    output: Annotated[str | None, output_option("check")] = None


def run(
    *,
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET...",
            help="FILE.py:CLASS, pkg.mod:CLASS, FILE.py, a folder or a built-in layer; one or several.",
        ),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]EXPR",
            help="An argument of forward: a .npy, .pt or .json file, or an expression in torch, B and T "
            "(repeatable).",
            rich_help_panel=Own.PANEL,
        ),
    ] = None,
    own: Own,
    weights: Weights,
    codes: Codes,
    output: _Output,
) -> None:
    """Construct and run a module, explain what crashes, and prove silent faults by experiment.

    Tokens and batch entries are changed, permuted and padded, weights are compared with the softmax of q @ k,
    and the cache with the whole text.

    A file stands for its attention-like classes, a folder for those of all files below it; several are summed
    up in a table, and all options count for each. Exit code 1: some finding is an error. 2: none is, and a
    target that you named, or all that was found, could not be checked. Else 0: the table says what was found
    in a file or a folder and could not be checked.

    `# attnscope: ignore[AS208]` on a line settles what is found there. [tool.attnscope] of pyproject.toml
    has the keys select, ignore, causal and per-file = {"encoder/*.py" = {ignore = ["AS2"], causal = false}};
    --select, --ignore and --causal win over it.
    """
    to = output.destination()
    if not target:
        raise UsageError("check takes a target", "for example attnscope check my_model.py:Attention")
    select, ignore = codes.split()
    if output.debug:
        from attnscope.strict import SWITCH

        os.environ[SWITCH] = "1"

    from attnscope.cli.progress import Progress
    from attnscope.cli.survey import survey

    keep_stdout_apart()
    with Progress("check") as progress:
        found = survey(target, lambda one: _checked(one, own, weights, input, select, ignore, progress.say))
    _refuse_unchecked(found)
    send(to, found, "check")
    if found.failed:
        raise typer.Exit(1)


def _checked(
    target: str,
    own: Own,
    weights: Weights,
    inputs: list[str] | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    progress: Callable[[str], None],
) -> Report:
    from attnscope.checks.session import check_target
    from attnscope.settings import choose

    chosen = choose(target, select, ignore, own.causal)
    request = replace(own.request(target, weights, inputs), causal=chosen.causal)
    report = check_target(
        request,
        select=chosen.select,
        ignore=chosen.ignore,
        progress=lambda what: progress(f"{target}: {what}" if what else ""),
    )
    return chosen.applied(report)


def _refuse_unchecked(found: Report | Survey) -> None:
    """What was named must be checked, and something of what was found, unless there is a fault to tell."""
    from attnscope.diagnostic import Survey

    if not isinstance(found, Survey) or found.failed:
        return
    named = [one for one in found.unchecked if one.named or not found.reports]
    if named:
        more = f" (and {len(named) - 1} more could not be checked)" if len(named) > 1 else ""
        raise UsageError(f"{named[0].target}: {named[0].reason}{more}")
