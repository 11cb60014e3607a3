"""The console that everything is printed on, and the few facts about it that a drawing may depend on.

A drawing is a list of `rich.text.Text` lines, none wider than `Style.width`. Drawings never see the console:
they see a `Style`, so the same function serves a terminal, a pipe, a file and a notebook.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal, TypeAlias

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:  # a plain drawing needs no console, and its import takes as long as a mask's drawing
    from rich.console import Console

ColorChoice = Literal["auto", "always", "never"]
Lines: TypeAlias = list[Text]

PIPED_WIDTH = 80

# Every colour has a relative luminance near 0.2, so that it can be read on white and on black alike.
_COLORS = {
    "axis.B": "color(244)",
    "axis.T": "color(33)",
    "axis.S": "color(30)",
    "axis.C": "color(166)",
    "axis.H": "color(164)",
    "axis.G": "color(99)",
    "axis.D": "color(28)",
    "dim": "color(244)",
    "title": "bold",
    "strong": "bold",
    "name": "",
    "option": "bold color(33)",
    "value": "color(136)",
    "error": "bold color(160)",
    "warning": "bold color(136)",
    "note": "bold color(30)",
    "help": "bold color(28)",
    "good": "color(28)",
    "bad": "color(160)",
    "care": "color(136)",
    "gutter": "color(33)",
    "allowed": "color(33)",
    "part.0": "color(33)",
    "part.1": "color(166)",
    "part.2": "color(28)",
    "part.3": "color(164)",
    "part.4": "color(30)",
    "part.5": "color(99)",
}

_ASCII = str.maketrans(
    {
        "→": "->",
        "←": "<-",
        "↔": "<->",
        "×": "x",
        "·": "-",
        "…": "...",
        "–": "-",
        "—": "-",
        "−": "-",
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
        "√": "sqrt",
        "÷": "/",
        "±": "+-",
        "≈": "~",
        "∞": "inf",
        "ᵀ": "^T",
        "²": "^2",
        "“": '"',
        "”": '"',
        "‘": "'",
        "’": "'",
    }
)
# The marks of `attnscope.text.piece`, which never leaves a real one of them as it is.
# In a piece \\xNN is a byte that is no whole character; characters below U+0100 are written otherwise.
_LATIN = {chr(code): f"\\u{code:04x}" for code in range(0xA1, 0x100)}
_PIECE_ASCII = str.maketrans({**_LATIN, "_": "\\_", "·": "_", "↵": "\\n", "→": "\\t"})
_SAFE_LINE = re.compile(r"[ -~]*\Z")


@dataclass(frozen=True, slots=True)
class Style:
    """What a drawing may know of where it will stand.

    `width` is in terminal cells. `unicode`: glyphs beyond ASCII may be used. `color`: named colours and bold
    may be used. `heat`: there are at least 256 colours, so that a background can carry a number; `truecolor`:
    there are all of them.
    """

    width: int = PIPED_WIDTH
    unicode: bool = True
    color: bool = False
    heat: bool = False
    truecolor: bool = True

    def __call__(self, name: str) -> str:
        """The rich style for a meaning (`axis.T`, `error`, `dim`); empty without colour."""
        return _COLORS.get(name, "") if self.color else ""

    def text(self, text: str) -> str:
        """Text of attnscope's own or of a user, safe to print: controls escaped, ASCII where it must be."""
        if _SAFE_LINE.match(text):
            return text
        return escape(text if self.unicode else text.translate(_ASCII), self.unicode)

    def piece(self, text: str) -> str:
        """A token's piece, with its marks for spaces and line ends in ASCII where it must be."""
        return escape(text if self.unicode else text.translate(_PIECE_ASCII), self.unicode)

    def glyph(self, unicode: str, ascii: str) -> str:
        return unicode if self.unicode else ascii


# Categories that a terminal interprets, reorders or hides: controls, formats (bidi, ZWJ), surrogates, private
# use, unassigned, line and paragraph separators; and spaces other than the plain one.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_VARIATION = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def escape(text: str, unicode: bool = True) -> str:
    """Show what a terminal would interpret as the escape that Python would write for it.

    Printable characters stay (all of them with `unicode`, else ASCII alone). Combining marks stay only behind
    a letter or another mark.
    """
    if text.isascii() and text.isprintable():
        return text
    out: list[str] = []
    previous = ""
    for char in text:
        if " " <= char <= "~":
            out.append(char)
            previous = "L" if char.isalnum() else ""
            continue
        category = unicodedata.category(char)
        unsafe = (
            not unicode
            or category in _UNSAFE
            or category == "Zs"
            or (category[0] == "M" and (not previous or _VARIATION.match(char) is not None))
        )
        if unsafe:
            out.append(_escaped(char))
            previous = ""
        else:
            out.append(char)
            previous = category[0] if category[0] in "LM" else ""
    return "".join(out)


def _escaped(char: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    if named is not None:
        return named
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def make_console(
    width: int | None = None, color: ColorChoice = "auto", file: IO[str] | None = None
) -> tuple[Console, Style]:
    """A console for `file` (standard output if None), and what may be drawn on it.

    Colour: `color="never"` and `"always"` decide; else NO_COLOR, then FORCE_COLOR, then whether `file` is a
    terminal that is not dumb. Width: the argument, COLUMNS, the terminal's own, else 80.
    """
    from rich.console import Console

    stream = sys.stdout if file is None else file
    colored = wants_color(stream, color, os.environ)
    unicode = can_unicode(stream, os.environ)
    cells = max(1, width if width is not None else _stream_width(stream, os.environ))
    console = Console(
        file=stream,
        width=cells,
        height=25,
        force_terminal=colored,
        color_system=("auto" if colored else None),
        no_color=not colored,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        force_jupyter=False,
        force_interactive=False,
        _environ=_environ_for_rich(os.environ, colored),
    )
    depth = console.color_system
    heat = colored and depth in ("256", "truecolor")
    return console, Style(cells, unicode, colored, heat, depth == "truecolor")


def draw_text(draw: Callable[[Style], Lines], width: int | None = None, color: ColorChoice = "auto") -> str:
    """What printing a drawing on standard output would write there; see `make_console`."""
    if not wants_color(sys.stdout, color, os.environ):
        cells = max(1, width if width is not None else _stream_width(sys.stdout, os.environ))
        lines = draw(Style(cells, can_unicode(sys.stdout, os.environ)))
        for line in lines:
            if line.cell_len > cells:
                line.truncate(cells, overflow="crop")
        return "".join(line.plain + "\n" for line in lines)
    console, style = make_console(width, color)
    with console.capture() as captured:
        emit(console, draw(style))
    return captured.get()


def wants_color(stream: IO[str], color: ColorChoice, environ: Mapping[str, str]) -> bool:
    """Whether escape sequences may be written to `stream` at all."""
    if color != "auto":
        return color == "always"
    if environ.get("NO_COLOR"):
        return False
    force = environ.get("FORCE_COLOR", "")
    if force:
        return force.lower() not in ("0", "false", "no")
    return _is_terminal(stream) and environ.get("TERM", "") not in ("dumb", "unknown")


def can_unicode(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Whether glyphs beyond ASCII arrive: the stream can encode them, and the locale was not set to C.

    Python writes UTF-8 under LANG=C all the same (PEP 538, PEP 540), setting LC_CTYPE to C.UTF-8 on its way;
    who sets LANG=C asks for ASCII. No locale at all says nothing, and then UTF-8 is right nearly everywhere.
    """
    encoding = getattr(stream, "encoding", None)
    if encoding:
        try:
            "→×·█▀░│─■".encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return False
    if environ.get("PYTHONIOENCODING") or environ.get("PYTHONUTF8") == "1":
        return True
    if not encoding:
        return True
    if environ.get("LC_ALL"):
        return environ["LC_ALL"] not in ("C", "POSIX")
    ctype = environ.get("LC_CTYPE", "")
    if ctype and ctype != "C.UTF-8":
        return ctype not in ("C", "POSIX")
    return environ.get("LANG", "") not in ("C", "POSIX")


def _environ_for_rich(environ: Mapping[str, str], colored: bool) -> dict[str, str]:
    """The decision on colour is made here; rich must not make it a second time and differently."""
    known = {key: environ[key] for key in ("TERM", "COLORTERM") if key in environ}
    if colored and known.get("TERM", "dumb") in ("dumb", "unknown", ""):
        known["TERM"] = "xterm-256color"
    return known


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def _stream_width(stream: IO[str], environ: Mapping[str, str]) -> int:
    columns = environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    if _is_terminal(stream):
        try:
            return os.get_terminal_size(stream.fileno()).columns or PIPED_WIDTH
        except (OSError, ValueError, AttributeError):
            return PIPED_WIDTH
    return PIPED_WIDTH


def emit(console: Console, lines: Iterable[Text]) -> None:
    """Print a drawing. The last guard of the promise that no line is wider than the width."""
    for line in lines:
        line.no_wrap = True
        line.overflow = "crop"
        if line.cell_len > console.width:
            line.truncate(console.width, overflow="crop")
        console.print(line, crop=True, soft_wrap=False)


__all__ = [
    "ColorChoice",
    "Lines",
    "Style",
    "can_unicode",
    "cell_len",
    "draw_text",
    "emit",
    "escape",
    "make_console",
    "wants_color",
]
