"""`attnscope check`."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Optional

import typer

from attnscope.cli.options import Color, Debug, Format, Output, Width
from attnscope.cli.output import destination, keep_stdout_apart, send
from attnscope.cli.target_options import (
    Args,
    Batch,
    Causal,
    Device,
    Dtype,
    Inputs,
    Layout,
    Length,
    Only,
    Seed,
    StateDict,
)
from attnscope.errors import UsageError
from attnscope.selection import expand, split

EXAMPLES = (
    "attnscope check multihead",
    "attnscope check torch.nn:MultiheadAttention --arg embed_dim=16 --arg num_heads=2",
)


def run(
    target: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="TARGET", help="FILE.py:CLASS, pkg.mod:CLASS, FILE.py or a built-in layer."),
    ] = None,
    arg: Args = None,
    input: Inputs = None,
    batch: Batch = None,
    length: Length = None,
    layout: Layout = None,
    causal: Causal = None,
    only: Only = None,
    seed: Seed = None,
    dtype: Dtype = None,
    device: Device = None,
    state_dict: StateDict = None,
    select: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--select",
            metavar="CODES",
            help="Look for these codes alone, by commas: AS201, or AS2 for all that begin so (repeatable).",
        ),
    ] = None,
    ignore: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--ignore", metavar="CODES", help="Leave these codes out, named likewise (repeatable)."),
    ] = None,
    format: Format = None,
    output: Output = None,
    width: Width = None,
    color: Color = None,
    debug: Debug = False,
) -> None:
    """Construct and run a module, explain what crashes, and prove silent faults by experiment.

    Tokens and batch entries are changed, permuted and padded, weights are compared with the softmax of q @ k,
    and the cache with the whole text. Exit code 1 when a fault was found, 0 when none was.

    `# attnscope: ignore[AS208]` on a line settles what is found there. [tool.attnscope] of pyproject.toml
    has the keys select, ignore, causal and per-file; --select, --ignore and --causal win over it.
    """
    to = destination(format, output, width, color)
    if target is None:
        raise UsageError("check takes a target", "for example attnscope check my_model.py:Attention")
    from attnscope.settings import choose

    for option, given in (("--select", select), ("--ignore", ignore)):
        if given is not None:
            expand(given, option)
    chosen = choose(target, split(select or ()), split(ignore or ()), causal)

    from attnscope.checks.session import check_target
    from attnscope.strict import SWITCH
    from attnscope.targets import Request

    if debug:
        os.environ[SWITCH] = "1"
    request = Request(
        target,
        tuple(arg or ()),
        tuple(input or ()),
        only,
        batch,
        length,
        layout,
        chosen.causal,
        seed,
        dtype,
        device,
        state_dict,
    )
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
