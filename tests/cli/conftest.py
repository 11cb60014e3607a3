"""Running the command line inside the test's process, its streams captured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from attnscope.cli.boundary import run


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`cli("mask", "--len", "8")` -> exit code, standard output, standard error."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")  # rich keeps the codes of the first depth that it draws in

    def call(*args: str) -> Result:
        capsys.readouterr()
        code = run(args)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def fails(cli: Callable[..., Result]) -> Callable[..., str]:
    """The one line that a wrong command line is answered with; checks everything else that holds for it."""

    def call(*args: str) -> str:
        result = cli(*args)
        assert result.code == 2, result
        assert result.out == ""
        assert result.err.endswith("\n") and result.err.count("\n") == 1, result.err
        assert result.err.startswith("attnscope")
        assert result.err.isprintable() or result.err[:-1].isprintable()
        return result.err[:-1]

    return call
