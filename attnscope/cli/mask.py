"""`attnscope mask`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.cli.options import among
from attnscope.cli.options.output import Output, send
from attnscope.errors import UsageError
from attnscope.masks import KINDS

if TYPE_CHECKING:
    from attnscope.render.terminal import Lines, Style

EXAMPLES = ("attnscope mask --len 8", "attnscope mask --len 12 --kind sliding --window 4")

_NAMES = [*KINDS]


def run(
    *,
    length: Annotated[
        int | None,
        typer.Option("--len", "-n", metavar="N", help="How many keys, and queries unless --queries."),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KIND",
            help=f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}.",
            autocompletion=among(_NAMES),
        ),
    ] = "causal",
    window: Annotated[
        int | None,
        typer.Option("--window", metavar="N", help="sliding: keys a query sees, its own included."),
    ] = None,
    prefix: Annotated[
        int | None,
        typer.Option("--prefix", metavar="N", help="prefix: keys that every query sees."),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option("--queries", metavar="N", help="Only the last N queries, as with a KV cache."),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("--offset", metavar="N", help="The position of the first query among the keys."),
    ] = None,
    output: Output,
) -> None:
    """Draw a mask: which query may attend to which key, and the torch that builds it."""
    to = output.destination()
    if length is None:
        raise UsageError("there is no --len", "for example --len 8")
    from attnscope.masks import build

    mask = build(kind, length, window=window, prefix=prefix, queries=queries, offset=offset)

    def draw(style: Style) -> Lines:
        from attnscope.render.mask import draw_mask

        return draw_mask(style, mask)

    send(to, mask, "mask", draw)
