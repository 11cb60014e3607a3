"""`attnscope compare`."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from attnscope.cli.options import Color, Debug, Format, Output, Width
from attnscope.cli.output import destination, keep_stdout_apart, send
from attnscope.errors import UsageError
from attnscope.layers.options import DTYPES
from attnscope.text import unknown

EXAMPLES = (
    "attnscope compare stacked multihead",
    "attnscope compare multihead torch.nn:MultiheadAttention --arg num_heads=2",
)

SECTIONS = ("weights", "runs", "shapes")


def run(
    a: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="A", help="A built-in layer, FILE.py:CLASS or pkg.mod:CLASS."),
    ] = None,
    b: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="B", help="The module that gets A's weights."),
    ] = None,
    arg: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--arg", metavar="NAME=EXPR", help="Constructor argument of each side that has it."),
    ] = None,
    arg_a: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--arg-a", metavar="NAME=EXPR", help="Constructor argument of A alone."),
    ] = None,
    arg_b: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--arg-b", metavar="NAME=EXPR", help="Constructor argument of B alone."),
    ] = None,
    input: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--input", metavar="EXPR", help="Argument of forward, as EXPR or NAME=EXPR."),
    ] = None,
    input_a: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--input-a", metavar="EXPR", help="Argument of A's forward alone."),
    ] = None,
    input_b: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--input-b", metavar="EXPR", help="Argument of B's forward alone."),
    ] = None,
    map: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--map", metavar="A.X=B.Y", help="Weights that belong together: A.qkv.weight[0:16]=B.q.weight."
        ),
    ] = None,
    causal: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option("--causal/--no-causal", help="Whether masks that are made are causal (default: yes)."),
    ] = None,
    layout: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--layout", metavar="NAME", help="Axes of the input: btc, tbc or nc."),
    ] = None,
    dtype: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--dtype", metavar="NAME", help="Compare in this type (default: float64 if both can)."),
    ] = None,
    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--seed", metavar="N", help="Seed of weights and inputs (default: 123)."),
    ] = None,
    show: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--show", metavar="SECTIONS", help="weights, runs, shapes: one or several, by commas."),
    ] = None,
    format: Format = None,
    output: Output = None,
    width: Width = None,
    color: Color = None,
    debug: Debug = False,
) -> None:
    """Are two modules the same function? Moves the weights of A into B, runs both, forward and backward, and
    shows the first step at which they part.

    Exit code 0: equal; 1: different; 2: they cannot be compared.
    """
    to = destination(format, output, width, color)
    if a is None or b is None:
        raise UsageError("compare takes two modules", "for example attnscope compare stacked multihead")
    if dtype is not None and dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"--seed {seed} is out of range", "a seed from 0 to 2**63 - 1 would work")
    sections = _sections(show)
    if show and to.json:
        raise UsageError("--show has no use for JSON, which has everything", "leave it out")

    import torch

    from attnscope.api import compare

    keep_stdout_apart()
    found = compare(
        a,
        b,
        *(input or ()),
        args=arg or (),
        args_a=arg_a or (),
        args_b=arg_b or (),
        inputs_a=input_a or (),
        inputs_b=input_b or (),
        maps=map or (),
        causal=causal is not False,
        layout=layout,
        dtype=None if dtype is None else getattr(torch, dtype),
        seed=123 if seed is None else seed,
    )

    def draw(style: Any) -> Any:
        from attnscope.render.compare import draw_comparison

        return draw_comparison(style, found, sections)

    send(to, found, "compare", draw)
    if found.failed:
        raise typer.Exit(1)


def _sections(show: list[str] | None) -> tuple[str, ...]:
    if not show:
        return SECTIONS
    names = [name.strip() for item in show for name in item.split(",") if name.strip()]
    for name in names:
        if name not in SECTIONS:
            raise unknown("section", name, SECTIONS)
    if not names:
        raise UsageError("--show names no section", f"known: {', '.join(SECTIONS)}")
    return tuple(section for section in SECTIONS if section in names)
