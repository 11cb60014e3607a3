"""`attnscope check`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from attnscope.cli.options.codes import Codes
from attnscope.cli.options.output import Output, keep_stdout_apart, send
from attnscope.cli.options.target import Own, Weights
from attnscope.errors import UsageError

EXAMPLES = (
    "attnscope check multihead",
    "attnscope check torch.nn:MultiheadAttention --arg num_heads=2",
)


def run(
    *,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="FILE.py:CLASS, pkg.mod:CLASS, FILE.py or a built-in layer."),
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
    output: Output,
) -> None:
    """Construct and run a module, explain what crashes, and prove silent faults by experiment.

    Tokens and batch entries are changed, permuted and padded, weights are compared with the softmax of q @ k,
    and the cache with the whole text. Exit code 1 when a fault was found, 0 when none was.

    `# attnscope: ignore[AS208]` on a line settles what is found there. [tool.attnscope] of pyproject.toml
    has the keys select, ignore, causal and per-file; --select, --ignore and --causal win over it.
    """
    to = output.destination()
    if target is None:
        raise UsageError("check takes a target", "for example attnscope check my_model.py:Attention")
    from dataclasses import replace

    from attnscope.settings import choose

    chosen = choose(target, *codes.split(), own.causal)

    from attnscope.checks.session import check_target
    from attnscope.strict import SWITCH

    if output.debug:
        os.environ[SWITCH] = "1"
    request = replace(own.request(target, weights, input), causal=chosen.causal)
    keep_stdout_apart()
    report = check_target(
        request,
        select=chosen.select,
        ignore=chosen.ignore,
        progress=_progress if sys.stderr.isatty() else None,
    )
    report = chosen.applied(report)
    send(to, report, "check")
    if report.failed:
        raise typer.Exit(1)


def _progress(what: str) -> None:
    """One line on the terminal, rewritten as the check goes on and gone at its end."""
    text = f"attnscope check: {what}" if what else ""
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
