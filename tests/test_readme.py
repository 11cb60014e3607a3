"""README.md: short, and everything in it works as printed."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cli_process import process
from tests.cli.test_commands import every_example

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks() -> Iterator[tuple[str, str, str]]:
    """Language, text and the last heading of each fenced block."""
    heading = ""
    for found in re.finditer(r"^## ([^\n]+)$|^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        if found[1]:
            heading = found[1]
        else:
            yield found[2], found[3], heading


def commands() -> list[str]:
    lines = [line for kind, text, _ in blocks() if kind == "sh" for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.startswith("attnscope ")))


def quoted() -> list[tuple[str, str]]:
    """Each block of output and the command above it; the rows of a trace belong to the default one."""
    shown: list[tuple[str, str]] = []
    last = ""
    for kind, text, _ in blocks():
        if kind == "sh":
            last = text.splitlines()[-1]
        elif kind == "text":
            rows = text.lstrip().startswith("55 ")
            shown.append(
                ('attnscope trace "Your journey starts with one step" --width 80' if rows else last, text)
            )
    return shown


def test_the_first_block_of_these_headings_is_run_by_machines() -> None:
    first: dict[str, tuple[str, str]] = {}
    for kind, text, heading in blocks():
        first.setdefault(heading, (kind, text))
    for heading in ("Quick start", "Tests"):
        kind, text = first[heading]
        assert kind == "sh" and "pip install torch==2.13.0\n" in text


def test_it_is_short() -> None:
    assert README.count("\n") <= 150
    assert all((ROOT / path).exists() for path in re.findall(r"\]\((?!http)([^)]+)\)", README))


@pytest.mark.parametrize("line", [line for line in commands() if line not in every_example()])
def test_every_command_runs_as_printed(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Those that `--help` has as well are run by the test of its examples."""
    monkeypatch.chdir(ROOT)
    _, *args = shlex.split(line)
    code = process(*args).returncode if args[0] == "run" else cli(*args).code
    assert code == (1 if "_bug" in line or args[0] == "run" else 0)


@pytest.mark.parametrize(("line", "text"), quoted(), ids=[line for line, _ in quoted()])
def test_the_output_is_what_is_printed(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, line: str, text: str
) -> None:
    monkeypatch.chdir(ROOT)
    out = cli(*shlex.split(line)[1:]).out
    if "  55 " in text:  # two rows that do not follow each other
        assert all(f"\n{row}\n" in out for row in text.splitlines())
    else:
        assert f"\n{text}" in out


def test_the_python_runs() -> None:
    (code,) = (text for kind, text, _ in blocks() if kind == "python")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(code, "README.md", "exec"), {})
    assert said.getvalue().endswith("()\n")  # nothing is found
