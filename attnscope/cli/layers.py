"""`attnscope layers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnscope.cli.options.output import Output, send

if TYPE_CHECKING:
    from attnscope.render.terminal import Lines, Style

EXAMPLES = ("attnscope layers", "attnscope layers --format json")


def run(output: Output) -> None:
    """List the built-in attention layers: options, parameters, steps, sources."""
    to = output.destination()
    from attnscope.layers import LAYERS

    infos = tuple(layer.info for layer in LAYERS.values())

    def draw(style: Style) -> Lines:
        from attnscope.render.layers import draw_layers

        return draw_layers(style, infos)

    send(to, infos, "layers", draw)
