"""A drawing as SVG or HTML: one file, no font, script or style from elsewhere.

Block characters become rectangles in the SVG: fonts leave seams between them, rectangles do not. rich's own
export has neither property: its SVG loads a font over the network and draws blocks as text, its HTML
sets a page's colours, where a notebook's cell should take those around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape as html_escape

from rich.color import Color
from rich.console import Console
from rich.style import Style as RichStyle
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from attnscope.render.terminal import cell_len, escape

FONTS = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
_BACKGROUND, _FOREGROUND = "#101418", "#d6dae0"
_THEME = TerminalTheme((16, 20, 24), (214, 218, 224), [(0, 0, 0)] * 8, [(128, 128, 128)] * 8)
# The mid-tone that is readable on black and on white is dull on black alone: a picture knows its ground.
_ON_DARK = {
    "#808080": "#8b949e",
    "#0087ff": "#58a6ff",
    "#008787": "#39c5cf",
    "#d75f00": "#ff9e57",
    "#d700d7": "#f778ea",
    "#875fff": "#b392ff",
    "#008700": "#56d364",
    "#d70000": "#ff7b72",
    "#af8700": "#e3b341",
}
CELL, LINE, SIZE, PADDING = 8.4, 18.0, 14.0, 16.0
_BLOCKS = {"█": (0.0, 1.0), "▀": (0.0, 0.5), "▄": (0.5, 1.0)}
_OPACITY = {"░": 0.25, "▒": 0.5, "▓": 0.75}


def _segments(line: Text, console: Console) -> list[tuple[str, RichStyle]]:
    return [
        (segment.text, segment.style or RichStyle())
        for segment in line.render(console)
        if segment.text and segment.text != "\n"
    ]


def _console() -> Console:
    import io

    return Console(
        file=io.StringIO(), width=10_000, color_system="truecolor", force_terminal=True, _environ={}
    )


def _hex(color: Color | None) -> str | None:
    if color is None or color.is_default:
        return None
    return color.get_truecolor(_THEME).hex


def to_svg(lines: Sequence[Text], title: str = "attnscope") -> str:
    """The drawing on a dark ground, as large as it is wide and high."""
    console = _console()
    width = max([cell_len(title), *(line.cell_len for line in lines)], default=1) * CELL + 2 * PADDING
    height = len(lines) * LINE + 2 * PADDING
    shapes: list[str] = []
    words: list[str] = []
    for number, line in enumerate(lines):
        top = PADDING + number * LINE
        cell = 0
        for text, style in _segments(line, console):
            size = cell_len(text)
            x = PADDING + cell * CELL
            ground = _hex(style.bgcolor)
            ink = _hex(style.color)
            # Over its own ground a colour stands as it was chosen; on the page's it is lightened.
            color = ink if ground else _ON_DARK.get(ink or "", ink)
            if ground:
                shapes.append(_rect(x, top, size * CELL, LINE, ground))
            if text.strip() and all(char in _BLOCKS for char in text):
                shapes += _block_rects(text, x, top, color or _FOREGROUND)
            elif text.strip() and all(char in _OPACITY or char in "█ " for char in text):
                shapes += _shade_rects(text, x, top, color or _FOREGROUND)
            elif text.strip():
                words += _words(text, x, top, color, bool(style.bold))
            cell += size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}" role="img">\n'
        f"<title>{_xml(title)}</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>\n'
        f'<g shape-rendering="crispEdges">\n{"".join(shapes)}</g>\n'
        f'<g font-family="{FONTS}" font-size="{SIZE:g}" fill="{_FOREGROUND}" xml:space="preserve">\n'
        f"{''.join(words)}</g>\n</svg>\n"
    )


def _rect(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> str:
    faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{faint}/>\n'


def _block_rects(text: str, x: float, top: float, fill: str) -> Iterable[str]:
    place = 0
    while place < len(text):
        end = place
        while end < len(text) and text[end] == text[place]:
            end += 1
        low, high = _BLOCKS[text[place]]
        yield _rect(x + place * CELL, top + low * LINE, (end - place) * CELL, (high - low) * LINE, fill)
        place = end


def _shade_rects(text: str, x: float, top: float, fill: str) -> Iterable[str]:
    for place, char in enumerate(text):
        if char != " ":
            yield _rect(x + place * CELL, top, CELL, LINE, fill, _OPACITY.get(char, 1.0))


def _words(text: str, x: float, top: float, color: str | None, bold: bool) -> Iterable[str]:
    """Runs of text, each put at its own column and given its width: no browser's font shifts a column."""
    looks = f' fill="{color}"' if color else ""
    looks += ' font-weight="bold"' if bold else ""
    cell = 0
    for part in re.split(r"( {2,})", text):
        if part.strip(" "):
            lead = len(part) - len(part.lstrip(" "))
            word = part.strip(" ")
            yield (
                f'<text x="{x + (cell + lead) * CELL:g}" y="{top + LINE * 0.74:g}"'
                f' textLength="{cell_len(word) * CELL:g}" lengthAdjust="spacingAndGlyphs"{looks}>'
                f"{_xml(word)}</text>\n"
            )
        cell += cell_len(part)


def _xml(text: str) -> str:
    return html_escape(escape(text), quote=False)


def to_html_block(lines: Sequence[Text]) -> str:
    """A `<pre>` for a notebook: it takes the page's own colours, so it suits light and dark themes."""
    console = _console()
    out: list[str] = []
    for line in lines:
        for text, style in _segments(line, console):
            css = []
            ink, ground = _hex(style.color), _hex(style.bgcolor)
            if ink:
                css.append(f"color:{ink}")
            if ground:
                css.append(f"background:{ground}")
            if style.bold:
                css.append("font-weight:bold")
            safe = html_escape(text, quote=False)
            out.append(f'<span style="{";".join(css)}">{safe}</span>' if css else safe)
        out.append("\n")
    return (
        f'<pre style="font-family:{FONTS};font-size:13px;line-height:1.25;white-space:pre;overflow-x:auto">'
        f"{''.join(out)}</pre>"
    )


def to_html(lines: Sequence[Text], title: str = "attnscope") -> str:
    """A whole page around `to_html_block`."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_xml(title)}</title>\n</head>\n<body>\n{to_html_block(lines)}\n</body>\n</html>\n"
    )
