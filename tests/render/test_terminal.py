"""What may be written to which stream."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.render import show
from attnscope.render.terminal import Style, can_unicode, emit, escape, make_console, wants_color
from tests.render import made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "color", "environ", "wanted"),
    [
        (True, "auto", {"TERM": "xterm"}, True),
        (True, "auto", {"TERM": "dumb"}, False),
        (True, "auto", {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, "auto", {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, "auto", {"TERM": "xterm", "NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, "auto", {"TERM": "xterm", "FORCE_COLOR": "0"}, False),
        (False, "auto", {"TERM": "xterm"}, False),
        (False, "auto", {"TERM": "xterm", "FORCE_COLOR": "1"}, True),
        (False, "always", {"NO_COLOR": "1"}, True),
        (True, "never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_color(terminal: bool, color: str, environ: dict[str, str], wanted: bool) -> None:
    stream = Terminal() if terminal else io.StringIO()
    assert wants_color(stream, color, environ) is wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("encoding", "environ", "wanted"),
    [
        ("utf-8", {}, True),
        ("utf-8", {"LANG": "de_DE.UTF-8"}, True),
        ("utf-8", {"LANG": "C"}, False),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),  # what Python itself makes of LANG=C
        ("utf-8", {"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, True),
        ("utf-8", {"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, False),
        ("utf-8", {"LANG": "C", "PYTHONIOENCODING": "utf-8"}, True),
        ("latin-1", {}, False),
        ("ascii", {"LANG": "en_US.UTF-8"}, False),
        (None, {}, True),
    ],
)
def test_unicode(encoding: str | None, environ: dict[str, str], wanted: bool) -> None:
    stream = io.StringIO() if encoding is None else io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert can_unicode(stream, environ) is wanted


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def test_a_pipe_gets_no_escape_and_80_columns(bare: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    console, style = make_console(file=file)
    assert style == Style(80, color=False, heat=False, truecolor=False)
    emit(console, show.object_lines(style, made.trace()))
    assert "\x1b" not in file.getvalue()
    assert "weights" in file.getvalue()


def test_a_terminal_gets_colors(bare: pytest.MonkeyPatch) -> None:
    file = Terminal()
    console, style = make_console(100, file=file)
    assert style == Style(100, color=True, heat=True, truecolor=False)
    emit(console, show.object_lines(style, made.mask(4)))
    assert "\x1b[" in file.getvalue()


def test_a_terminal_of_16_colors_gets_no_heat(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("TERM", "xterm")
    assert make_console(file=Terminal())[1] == Style(80, color=True, heat=False, truecolor=False)


def test_columns_is_respected(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("COLUMNS", "132")
    assert make_console(file=io.StringIO())[1].width == 132
    assert make_console(90, file=io.StringIO())[1].width == 90


def test_an_ascii_stream_gets_ascii_and_never_raises(bare: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    console, style = make_console(file=file)
    emit(console, show.object_lines(style, made.tokens(["·日本", "é", "\udc80", "_"])))
    file.flush()
    assert "_\\u65e5\\u672c" in raw.getvalue().decode("ascii")
    assert "\\_" in raw.getvalue().decode("ascii")
    assert "\\u00e9" in raw.getvalue().decode("ascii"), "\\xe9 would be a byte that is no whole character"


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_escape_leaves_nothing_that_a_terminal_interprets(text: str) -> None:
    shown = escape(text)
    assert {unicodedata.category(char) for char in shown}.isdisjoint(
        {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    )
    assert escape(text, unicode=False).isascii()
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold] `x`", "plain [bold] `x`"),
        ("\x1b]0;t\x07", "\\x1b]0;t\\x07"),
        ("a\u202eb", "a\\u202eb"),
        ("👩\u200d🚀", "👩\\u200d🚀"),
        ("\u0301x", "\\u0301x"),
        ("e\u0301", "e\u0301"),
        ("\xa0", "\\xa0"),
        ("\ud800", "\\ud800"),
        ("\x00\n\t", "\\x00\\n\\t"),
        ("日本 é", "日本 é"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown
