"""`attnscope reshape`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.cli.options.output import Output, send
from attnscope.errors import UsageError

if TYPE_CHECKING:
    from attnscope.render.terminal import Lines, Style

EXAMPLES = (
    'attnscope reshape "view(6, 2, 8).transpose(0, 1)" --shape 6,16',
    "attnscope reshape 'rearrange(x, \"t (h d) -> h t d\", h=2)' --shape 6,16",
)

_SIZES = re.compile(r"\s*[\[(]?\s*(\d+(?:[\s,x×]+\d+)*)\s*,?\s*[\])]?\s*\Z")


def run(
    *,
    chain: Annotated[
        str | None,
        typer.Argument(
            metavar="CHAIN", help="Views, transposes, splits, as written in code; - reads standard input."
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", "-s", metavar="SIZES", help="The input's sizes: 6,16 or 2,6,16."),
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option("--heads", metavar="H", help="Heads that channels are coloured by (default: as cut)."),
    ] = None,
    output: Output,
) -> None:
    """Follow every element through a chain of views and copies: numbers in logical order, strides and memory.

    Elements are numbered from 0 in the order of the input's memory. No module is run, torch is not needed. A
    step that torch would refuse is explained, with what would work; then the exit code is 1.
    """
    to = output.destination()
    if chain is None:
        raise UsageError("reshape takes a chain", f"for example {EXAMPLES[0].removeprefix('attnscope ')}")
    from attnscope.reshaping.chain import follow
    from attnscope.text import read_text

    made = follow(read_text(None, chain), _sizes(shape))
    channels = made.shape[-1]
    if heads is not None and (heads < 1 or channels % heads):
        raise UsageError(f"--heads {heads} does not divide the {channels} of the last axis", "leave it out")

    def draw(style: Style) -> Lines:
        from attnscope.render.reshape import draw_reshaping

        return draw_reshaping(style, made, heads)

    send(to, made, "reshape", draw)
    if made.failed:
        raise typer.Exit(1)


def _sizes(shape: str | None) -> tuple[int, ...]:
    if shape is None:
        raise UsageError("there is no --shape", "for example --shape 6,16")
    found = _SIZES.match(shape)
    if found is None or len(shape) > 200:
        raise UsageError(f"--shape `{shape[:40]}` is no list of sizes", "for example --shape 6,16")
    return tuple(int(size) for size in re.findall(r"\d+", found[1]))
