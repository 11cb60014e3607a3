"""`attnscope layers`."""

from __future__ import annotations

from attnscope.cli.options import Color, Debug, Format, Output, Width
from attnscope.cli.output import destination, send

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

    send(to, tuple(layer.info for layer in LAYERS.values()), "layers")
