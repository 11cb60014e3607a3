"""`attnscope layers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnscope.cli.options import Color, Debug, Format, Output, Width
from attnscope.cli.output import destination, send

if TYPE_CHECKING:
    from attnscope.render.terminal import Lines, Style

EXAMPLES = ("attnscope layers", "attnscope layers --format json")


def run(
    format: Format = None,
    output: Output = None,
    width: Width = None,
    color: Color = None,
    debug: Debug = False,
) -> None:
    """List the built-in attention layers: options, parameters, steps, sources."""
    to = destination(format, output, width, color)
    from attnscope.layers import LAYERS

    infos = tuple(layer.info for layer in LAYERS.values())

    def draw(style: Style) -> Lines:
        from attnscope.render.layers import draw_layers

        return draw_layers(style, infos)

    send(to, infos, "layers", draw)
