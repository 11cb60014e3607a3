"""`attnscope compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from attnscope.cli.options import Group
from attnscope.cli.options.output import Output, keep_stdout_apart, send
from attnscope.cli.options.sections import chosen
from attnscope.cli.progress import Progress
from attnscope.errors import UsageError
from attnscope.layers.options import DTYPES
from attnscope.text import unknown

EXAMPLES = (
    "attnscope compare stacked multihead",
    "attnscope compare multihead torch.nn:MultiheadAttention --arg num_heads=2",
)

SECTIONS = ("weights", "runs", "shapes")


@dataclass(frozen=True)
class Sides(Group):
    """Arguments of the two constructors and of the two forwards."""

    PANEL: ClassVar[str] = "The two modules"

    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=EXPR", help="Constructor argument of each side that has it."),
    ] = None
    arg_a: Annotated[
        list[str] | None,
        typer.Option("--arg-a", metavar="NAME=EXPR", help="Constructor argument of A alone."),
    ] = None
    arg_b: Annotated[
        list[str] | None,
        typer.Option("--arg-b", metavar="NAME=EXPR", help="Constructor argument of B alone."),
    ] = None
    input: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="EXPR", help="Argument of forward, as EXPR or NAME=EXPR."),
    ] = None
    input_a: Annotated[
        list[str] | None,
        typer.Option("--input-a", metavar="EXPR", help="Argument of A's forward alone."),
    ] = None
    input_b: Annotated[
        list[str] | None,
        typer.Option("--input-b", metavar="EXPR", help="Argument of B's forward alone."),
    ] = None
    map: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="A.X=B.Y", help="Weights that belong together: A.qkv.weight[0:16]=B.q.weight."
        ),
    ] = None


@dataclass(frozen=True)
class Runs(Group):
    """How the two are run."""

    PANEL: ClassVar[str] = "How they are run"

    causal: Annotated[
        bool | None,
        typer.Option("--causal/--no-causal", help="Whether masks that are made are causal (default: yes)."),
    ] = None
    layout: Annotated[
        str | None, typer.Option("--layout", metavar="AXES", help="Axes of the input: btc, tbc or nc.")
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="NAME", help="Compare in this type (default: float64 if both can)."),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Seed of weights and inputs (default: 123)."),
    ] = None

    def check(self) -> None:
        """Raises UsageError for a dtype that there is not, and for a seed out of range."""
        if self.dtype is not None and self.dtype not in DTYPES:
            raise unknown("dtype", self.dtype, DTYPES)
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed {self.seed} is out of range", "a seed from 0 to 2**63 - 1 would work")


def run(
    *,
    a: Annotated[
        str | None,
        typer.Argument(metavar="A", help="A built-in layer, FILE.py:CLASS or pkg.mod:CLASS."),
    ] = None,
    b: Annotated[str | None, typer.Argument(metavar="B", help="The module that gets A's weights.")] = None,
    sides: Sides,
    runs: Runs,
    show: Annotated[
        list[str] | None,
        typer.Option(
            "--show",
            metavar="SECTIONS",
            help="weights, runs, shapes: one or several, by commas.",
            rich_help_panel=Output.PANEL,
        ),
    ] = None,
    output: Output,
) -> None:
    """Are two modules the same function? Moves the weights of A into B, runs both, forward and backward, and
    shows the first step at which they part.

    Exit code 0: equal; 1: different; 2: they cannot be compared.
    """
    to = output.destination()
    if a is None or b is None:
        raise UsageError("compare takes two modules", "for example attnscope compare stacked multihead")
    runs.check()
    sections = chosen(show, SECTIONS)
    if show and to.json:
        raise UsageError("--show has no use for JSON, which has everything", "leave it out")
    found = _compared(a, b, sides, runs)

    def draw(style: Any) -> Any:
        from attnscope.render.compare import draw_comparison

        return draw_comparison(style, found, sections)

    send(to, found, "compare", draw)
    if found.failed:
        raise typer.Exit(1)


def _compared(a: str, b: str, sides: Sides, runs: Runs) -> Any:
    import torch

    from attnscope.api import compare

    keep_stdout_apart()
    with Progress("compare"):
        return compare(
            a,
            b,
            *(sides.input or ()),
            args=sides.arg or (),
            args_a=sides.arg_a or (),
            args_b=sides.arg_b or (),
            inputs_a=sides.input_a or (),
            inputs_b=sides.input_b or (),
            maps=sides.map or (),
            causal=runs.causal is not False,
            layout=runs.layout,
            dtype=None if runs.dtype is None else getattr(torch, runs.dtype),
            seed=123 if runs.seed is None else runs.seed,
        )
