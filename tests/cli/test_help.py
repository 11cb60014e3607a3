"""`--help`: panels as wide as the terminal, every option in one of them, two examples at the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from attnscope.cli.app import COMMANDS, EXAMPLES, build, load

Cli = Callable[..., Any]


def examples_of(command: str | None) -> tuple[str, ...]:
    examples: tuple[str, ...] = import_module(f"attnscope.cli.{command}").EXAMPLES if command else EXAMPLES
    return examples


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_is_as_wide_as_was_said_and_ends_with_two_examples(cli: Cli, command: str | None) -> None:
    args = [command] if command else []
    wide = ["--width"] if command else []
    result = cli(*args, "--help")
    assert (result.code, result.err) == (0, "")
    assert [line.strip() for line in result.out.splitlines()[-2:]] == list(examples_of(command))
    assert cli(*args, "-h").out == result.out
    for width in (60, 80, 160) if wide else (80,):
        out = cli(*args, *wide, str(width), "--help").out if wide else result.out
        lines = out.splitlines()
        assert {len(line) for line in lines if line.startswith(("╭", "│", "╰"))} == {width}
        assert max(map(len, lines)) == width
        pasted = out[out.index("\nexamples") :].replace(" \\\n    ", " ")
        assert all(example in pasted for example in examples_of(command))


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_every_option_stands_in_one_panel(cli: Cli, command: str | None) -> None:
    out = cli(*([command] if command else []), "--help").out
    for one in (load(command) if command else build()).params:
        if one.param_type_name == "option":
            long = [name for name in one.opts if name.startswith("--")] or one.opts
            name = "/".join([*long, *one.secondary_opts])
            assert re.search(rf"^│ (    |-., )?{re.escape(name)} ", out, re.MULTILINE), name


def test_options_that_only_one_kind_of_target_has_stand_apart(cli: Cli) -> None:
    out = cli("trace", "--help").out
    built_in = out[out.index("─ Only for a built-in layer") : out.index("─ Only for your own module")]
    own = out[out.index("─ Only for your own module") : out.index("─ Weights and device")]
    assert "--d-model" in built_in and "--d-model" not in own
    assert "--module" in own and "--arg" in own and "--arg" not in built_in


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_options_of_all(command: str) -> None:
    options = {name for one in load(command).params for name in one.opts}
    assert {"--output", "-o", "--width", "--color", "--debug"} <= options


def test_help_in_ascii_and_in_colour(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    out = cli("mask", "--help").out
    assert out.isascii() and "\n+- Output -" in out
    assert "\x1b[" in cli("mask", "--help", "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in cli("--help").out
    assert "\x1b[" not in cli("mask", "--help", "--color=never").out


# --- completion -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("attnscope tr", ["trace"]),
        ("attnscope ", [*COMMANDS]),
        ("attnscope explain AS20", [f"AS20{digit}" for digit in range(1, 10)]),
        ("attnscope trace --layer m", ["multihead"]),
        ("attnscope mask --kind s", ["sliding"]),
        ("attnscope check --form", ["--format"]),
        ("attnscope run --na", ["--nan"]),
        ("attnscope nothing --wid", []),
    ],
)
def test_what_could_stand_next(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: str, found: list[str]
) -> None:
    monkeypatch.setenv("_ATTNSCOPE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    result = cli()
    assert (result.code, result.err) == (0, "")
    assert result.out.split() == found


def test_completion_can_be_installed(cli: Cli) -> None:
    assert "--install-completion" in cli("--help").out


# --- messages -------------------------------------------------------------------------------------------


def test_the_word_error_is_red_on_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("mask").err == "attnscope mask: error: there is no --len; for example --len 8\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert cli("mask").err.startswith("attnscope mask: \x1b[1;31merror:\x1b[0m there is no --len")
    assert "\x1b" not in cli("mask", "--color", "never").err
