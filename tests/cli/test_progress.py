"""One line on a terminal that says what takes its time, and is gone when it is done."""

from __future__ import annotations

import io
import os
import time

import pytest

from attnscope.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((40, 24)))
    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.01)
    return stream


def told(stream: Terminal) -> list[str]:
    with progress.Progress("check", stream) as one:
        one.say("a.py: backward\x1b[2J" + "x" * 80)
        one.say("")
        end = time.monotonic() + 5
        while not stream.getvalue() and time.monotonic() < end:
            time.sleep(0.005)
    return stream.getvalue().split("\r\x1b[K")


def test_the_line_is_cut_to_the_terminal_and_gone_at_the_end(terminal: Terminal) -> None:
    before, *lines, last = told(terminal)
    assert (before, last) == ("", "")
    assert lines and all(len(line) == 39 and line.isprintable() for line in lines)
    assert lines[0].startswith("attnscope check: a.py: backward")


def test_what_is_quick_says_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER", 60)
    with progress.Progress("trace", terminal):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("term", ["dumb", None])
def test_nothing_is_said_where_no_one_looks_on(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, term: str | None
) -> None:
    if term is None:
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    else:
        monkeypatch.setenv("TERM", term)
    with progress.Progress("check", terminal) as one:
        one.say("backward")
        time.sleep(0.05)
    assert terminal.getvalue() == ""
