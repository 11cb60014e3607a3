"""`attnscope check`."""

from __future__ import annotations

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
        typer.Option("--select", metavar="CODES", help="Look for these codes alone, by commas (repeatable)."),
    ] = None,
    ignore: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--ignore", metavar="CODES", help="Leave these codes out, by commas (repeatable)."),
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
    """
    to = destination(format, output, width, color)
    if target is None:
        raise UsageError("check takes a target", "for example attnscope check my_model.py:Attention")
    from attnscope.checks.session import check_target
    from attnscope.targets import Request

    request = Request(
        target,
        tuple(arg or ()),
        tuple(input or ()),
        only,
        batch,
        length,
        layout,
        causal,
        seed,
        dtype,
        device,
        state_dict,
    )
    keep_stdout_apart()
    report = check_target(
        request,
        select=_codes("--select", select),
        ignore=_codes("--ignore", ignore),
        progress=_progress if sys.stderr.isatty() else None,
    )
    send(to, report, "check")
    if report.failed:
        raise typer.Exit(1)


def _codes(option: str, given: list[str] | None) -> tuple[str, ...]:
    names = tuple(name.strip() for item in given or () for name in item.split(",") if name.strip())
    if given and not names:
        raise UsageError(f"{option} names no code", "for example AS201")
    return names


def _progress(what: str) -> None:
    """One line on the terminal, rewritten as the check goes on and gone at its end."""
    text = f"attnscope check: {what}" if what else ""
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
