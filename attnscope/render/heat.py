"""Numbers in [0, 1] as colours, half blocks, shades or ASCII: the picture that a matrix becomes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from attnscope.render.layout import INDENT
from attnscope.render.terminal import Style

# Dark and cool to bright and warm, luminance rising all the way: a cell carries its own background, so it
# reads alike on a dark and on a light terminal.
_STOPS = (
    (0.00, (38, 44, 66)),
    (0.25, (54, 76, 140)),
    (0.50, (142, 76, 158)),
    (0.75, (232, 104, 92)),
    (1.00, (255, 214, 110)),
)
# The same way through the 256 colours of older terminals: the nearest ones to a fine ramp would not rise.
_STEPS = (17, 18, 54, 55, 91, 97, 132, 168, 173, 209, 215, 222)
_DARK_STEPS = 6
_NAN = "#ff0000"
LEVELS = 64
SHADES = " ░▒▓█"
RAMP = " .:-=+*#%@"


def _ramp_colors() -> tuple[tuple[str, str], ...]:
    """(background, readable foreground) of each of LEVELS levels."""
    colors = []
    for level in range(LEVELS):
        at = level / (LEVELS - 1)
        for (low, one), (high, two) in pairwise(_STOPS):
            if at <= high:
                part = (at - low) / (high - low)
                red, green, blue = (round(a + (b - a) * part) for a, b in zip(one, two, strict=True))
                break
        linear = [(part / 255) ** 2.2 for part in (red, green, blue)]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        colors.append((f"#{red:02x}{green:02x}{blue:02x}", "#000000" if light > 0.18 else "#ffffff"))
    return tuple(colors)


_COLORS = _ramp_colors()


def lift(value: float) -> float:
    """The square root: attention spreads thin, and 1/16 should be told from 0 at a glance."""
    return float(min(1.0, max(0.0, value)) ** 0.5)


def level_of(value: float) -> int:
    return min(LEVELS - 1, int(lift(value) * LEVELS))


def cell_style(style: Style, value: float) -> str:
    """Rich style of a number over its heat."""
    if style.truecolor:
        background, foreground = _COLORS[level_of(value)]
        return f"{foreground} on {background}"
    step = _step(value)
    return f"color({231 if step < _DARK_STEPS else 16}) on color({_STEPS[step]})"


def color(style: Style, value: float) -> str:
    """Rich colour of a weight; NaN is a red that no weight has."""
    if value != value:
        return _NAN
    return _COLORS[level_of(value)][0] if style.truecolor else f"color({_STEPS[_step(value)]})"


def _step(value: float) -> int:
    return min(len(_STEPS) - 1, int(lift(value) * len(_STEPS)))


def shade(style: Style, value: float) -> str:
    """One character for a weight where there is no colour; the blank is a weight near 0."""
    if value != value:
        return "!"
    ramp = SHADES if style.unicode else RAMP
    return ramp[min(len(ramp) - 1, int(lift(value) * len(ramp)))]


def shade_bounds(style: Style) -> list[tuple[str, float]]:
    """Each shade with the smallest weight that gets it."""
    ramp = SHADES if style.unicode else RAMP
    return [(char, (place / len(ramp)) ** 2) for place, char in enumerate(ramp)]


def half_blocks(style: Style, values: NDArray[Any], blocked: NDArray[np.bool_]) -> list[Text]:
    """Two rows of cells per line: the upper as foreground, the lower as background; blocked: empty."""
    lines = []
    rows = values.shape[0]
    for top in range(0, rows, 2):
        line = Text()
        upper, upper_blocked = values[top], blocked[top]
        has_lower = top + 1 < rows
        lower = values[top + 1] if has_lower else upper
        lower_blocked = blocked[top + 1] if has_lower else np.ones_like(upper_blocked)
        for one, no_one, two, no_two in zip(
            upper.tolist(), upper_blocked.tolist(), lower.tolist(), lower_blocked.tolist(), strict=True
        ):
            if no_one and no_two:
                line.append(" ")
            elif no_two:
                line.append("▀", color(style, one))
            elif no_one:
                line.append("▄", color(style, two))
            else:
                line.append("▀", f"{color(style, one)} on {color(style, two)}")
        lines.append(line)
    return lines


def shaded(style: Style, values: NDArray[Any], blocked: NDArray[np.bool_]) -> list[Text]:
    """One row of cells per line, two characters a cell, so that a square matrix looks square."""
    empty = style.glyph("·", "'") + " "
    return [
        Text("".join(empty if no else shade(style, value) * 2 for value, no in zip(row, gone, strict=True)))
        for row, gone in zip(values.tolist(), blocked.tolist(), strict=True)
    ]


def legend(style: Style) -> list[Text]:
    """The scale: a strip of colours, or each shade with its bound."""
    dim = style("dim")
    if style.heat and style.unicode:
        line = Text(INDENT)
        line.append("0 ", dim)
        steps = max(2, min(24, style.width - 24))
        for place in range(steps):
            line.append("█", color(style, (place / (steps - 1)) ** 2))
        line.append(" 1  blank: blocked", dim)
        return [line]
    bounds = [(char, f"{bound:.2f}".lstrip("0")) for char, bound in shade_bounds(style)]
    entries = [
        ("blank", f"<{bounds[1][1]}"),
        *((char, style.glyph("≥", ">=") + bound) for char, bound in bounds[1:]),
    ]
    entries.append((style.glyph("·", "'"), "blocked"))
    lines = [Text(INDENT)]
    for char, meaning in entries:
        line = lines[-1]
        if line.cell_len > len(INDENT):
            if line.cell_len + 2 + len(char) + 1 + len(meaning) > style.width:
                line = Text(INDENT)
                lines.append(line)
            else:
                line.append("  ")
        line.append(char).append(f" {meaning}", dim)
    return lines
