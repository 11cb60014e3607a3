"""`attnscope tokens`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnscope.cli.options.output import Output, send
from attnscope.cli.options.text import Text

if TYPE_CHECKING:
    from attnscope.render.terminal import Lines, Style

EXAMPLES = (
    'attnscope tokens "Your journey starts with one step"',
    'attnscope tokens "naive cafe" --encoding bytes --format json',
)


def run(text: Text, output: Output) -> None:
    """Show a text as tokens: number, id, piece and bytes of each."""
    to = output.destination()
    tokens, name = text.tokens(), text.encoding_name

    def draw(style: Style) -> Lines:
        from attnscope.render.tokens import draw_tokens

        return draw_tokens(style, tokens, name)

    send(to, tokens, "tokens", draw, lambda body: {**body, "encoding": name})
