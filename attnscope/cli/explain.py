"""`attnscope explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attnscope.cli.options import among
from attnscope.cli.options.output import Output, send

if TYPE_CHECKING:
    from attnscope.render.terminal import Lines, Style

EXAMPLES = ("attnscope explain AS101", "attnscope explain")


def _codes() -> tuple[str, ...]:
    from attnscope.codebook import names

    return names()


def run(
    *,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="A code such as AS101; without one all codes are listed.",
            autocompletion=among(_codes),
        ),
    ] = None,
    output: Output,
) -> None:
    """Say what a diagnostic code means, why it is bad, with an example and the cure."""
    to = output.destination()
    from attnscope import codebook

    found = codebook.explain(code) if code is not None else None
    known = codebook.codes() if found is None else ()

    def draw(style: Style) -> Lines:
        from attnscope.render.explain import draw_codes, draw_explanation

        return draw_explanation(style, found) if found is not None else draw_codes(style, known)

    send(to, found or known, "explain", draw)
