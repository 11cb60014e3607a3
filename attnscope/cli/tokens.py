"""`attnscope tokens`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnscope.cli.options import Color, Debug, Download, Encoding, File, Format, Output, Special, Text, Width
from attnscope.cli.output import destination, send
from attnscope.text import encode, read_text

if TYPE_CHECKING:
    from attnscope.render.terminal import Lines, Style

EXAMPLES = (
    'attnscope tokens "Your journey starts with one step"',
    'attnscope tokens "naive cafe" --encoding bytes --format json',
)


def run(
    text: Text = None,
    file: File = None,
    encoding: Encoding = None,
    special: Special = False,
    download: Download = False,
    format: Format = None,
    output: Output = None,
    width: Width = None,
    color: Color = None,
    debug: Debug = False,
) -> None:
    """Show a text as tokens: number, id, piece and bytes of each."""
    to = destination(format, output, width, color)
    name = encoding or "gpt2"
    tokens = encode(read_text(file, text), name, special=special, download=download)

    def draw(style: Style) -> Lines:
        from attnscope.render.tokens import draw_tokens

        return draw_tokens(style, tokens, name)

    send(to, tokens, "tokens", draw, lambda body: {**body, "encoding": name})
