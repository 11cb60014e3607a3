"""What the user settles: comments on a line, the table in `pyproject.toml`, `--select` and `--ignore`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from attnscope.diagnostic import Diagnostic
from attnscope.errors import UsageError
from attnscope.ignores import settled
from attnscope.schema import Span
from attnscope.selection import selection
from attnscope.settings import choose, nearest

Fails = Callable[..., str]

MODULE = """\
import torch
from torch import nn


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        scores = (
            q @ k.transpose(-2, -1)  # one
        )  # two
        late = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)  # three
        scores = scores.masked_fill(late, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class Other(A):
    def forward(self, x):
        return super().forward(x)  # attnscope: ignore[AS211]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`module(one="# …")`: the file with these comments; the current folder is its own."""
    monkeypatch.chdir(tmp_path)

    def write(name: str = "attn.py", **comments: str) -> str:
        text = MODULE
        for place, comment in comments.items():
            text = text.replace(f"# {place}\n", f"{comment}\n")
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return name

    return write


def found(result: Any) -> list[str]:
    return [one["code"] for one in result.json["findings"]]


def check(cli: Any, *args: str) -> Any:
    return cli("check", *args, "--format", "json")


def test_a_comment_settles_what_is_found_on_its_statement(cli: Any, module: Any) -> None:
    plain = check(cli, f"{module()}:A")
    assert plain.code == 1 and found(plain) == ["AS208"] and plain.json["notes"] == []
    result = check(cli, f"{module('on_two.py', two='# attnscope: ignore[AS208, AS201]')}:A")
    assert result.code == 0 and found(result) == []
    assert result.json["notes"] == ["1 finding ignored at on_two.py:15 (AS208)"]


def test_a_comment_that_says_nothing_is_a_note(cli: Any, module: Any) -> None:
    name = module(
        one="# why  # attnscope: ignore",
        two="# attnscope: ingore[AS208]",
        three="# attnscope:ignore[AS2, AS9]",
    )
    result = check(cli, f"{name}:A")
    assert result.code == 0
    assert result.json["notes"] == [
        "1 finding ignored at attn.py:14 (AS208)",
        "`# attnscope: ingore[AS208]` at attn.py:15 is not understood: `ignore[AS208]` would be",
        "`AS9` at attn.py:16 is no code",
    ]
    idle = module("idle.py", one="# attnscope: ignore[AS208]", three="# attnscope: ignore[AS205]")
    said = check(cli, f"{idle}:A").json["notes"]
    assert said[1:] == ["`# attnscope: ignore` at idle.py:16 ignores nothing"]
    # What was not looked for is no reason to call a comment useless, nor is another class's.
    assert len(check(cli, f"{idle}:A", "--ignore", "AS20").json["notes"]) == 0


def spans(text: str, line: int, end: int | None = None, code: str = "AS208") -> int:
    """How many findings are left of one that spans these lines of a file."""
    path = Path(f"{len(list(Path().iterdir()))}.py")
    path.write_text(dedent(text))
    return len(settled([Diagnostic(code, "error", "", Span(str(path), line, 1, end or line, 2))])[0])


def test_which_lines_a_comment_is_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = """\
        def f(x):  # attnscope: ignore[AS217]
            s = '# attnscope: ignore'
            x = g(  # attnscope: ignore[AS208]
                x,
                1,
            )
            y = 1; z = x  # attnscope: ignore
            if x:
                return f'{x}  # attnscope: ignore'
        """
    assert [line for line in range(1, 10) if not spans(call, line)] == [3, 4, 5, 6, 7]
    assert [line for line in range(1, 10) if not spans(call, line, code="AS217")] == [1, 7]
    assert not spans(call, 1, 9, "AS217")
    assert not spans("x = 1  # attnscope: ignore[as2]\n", 1)
    assert spans("x = 1  # attnscope: ignore[AS1]\n", 1)
    assert spans("x = 1  # attnscope: ignore AS208\n", 1)
    assert spans("x = 1  # attnscope: ignore[]\n", 1)


def test_the_settings_of_a_project(cli: Any, module: Any, tmp_path: Path) -> None:
    name = module("models/attn.py")
    table = tmp_path / "pyproject.toml"
    (tmp_path / "models" / "pyproject.toml").write_text("[tool.other]\n")  # is looked through

    table.write_text('[tool.attnscope]\nignore = ["AS208"]\ncausal = false\n')
    result = check(cli, f"{name}:A")
    assert result.code == 0 and found(result) == []
    assert result.json["notes"] == ["pyproject.toml: ignore AS208; causal = false"]
    result = check(cli, f"{name}:A", "--select", "AS2", "--causal")
    assert found(result) == ["AS208"] and result.json["notes"] == []

    table.write_text('[tool.attnscope]\nper-file = {"models/*.py" = {ignore = ["AS20"], causal = true}}\n')
    result = check(cli, f"{name}:A")
    assert result.code == 0 and found(result) == []
    assert result.json["notes"] == [
        "pyproject.toml: causal = true (`models/*.py`)",
        "1 finding ignored by pyproject.toml at models/attn.py:14 (AS208)",
    ]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("ingore = []", "unknown key of pyproject.toml: [tool.attnscope] `ingore`; did you mean ignore?"),
        (
            'ignore = ["AS999"]',
            "unknown code of pyproject.toml: [tool.attnscope] ignore `AS999`; "
            "the nearest is AS302; codes go from AS100 to AS302",
        ),
        (
            'ignore = "AS208"',
            'pyproject.toml: [tool.attnscope] ignore must be a list of codes; ignore = ["AS208"] would work',
        ),
        ("select = []", "pyproject.toml: [tool.attnscope] select names no code; for example AS201"),
        (
            'causal = "no"',
            "pyproject.toml: [tool.attnscope] causal must be true or false; causal = false would work",
        ),
        (
            "per-file = []",
            'pyproject.toml: [tool.attnscope] per-file must be a table; "models/*.py" = {ignore = ["AS208"]}',
        ),
        (
            'per-file = {"a.py" = {select = ["AS2"]}}',
            'unknown key of pyproject.toml: [tool.attnscope] per-file "a.py" `select`; known: ignore, causal',
        ),
        ("ignore = [", "pyproject.toml is no TOML; Invalid value (at end of document)"),
    ],
)
def test_wrong_settings_are_one_line(
    fails: Fails, module: Any, tmp_path: Path, table: str, said: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.attnscope]\n{table}\n")
    assert fails("check", f"{module()}:A") == f"attnscope check: error: {said}"


def test_patterns_are_those_of_per_file_ignores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "[tool.attnscope.per-file]\n" + "".join(
        f'"{pattern}" = {{causal = true}}\n'
        for pattern in ("a.py", "models/*.py", "./top.py", "**/deep.py", "other/*")
    )
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "inner").mkdir()
    read = nearest(tmp_path / "inner")
    assert read is not None

    def of(name: str) -> list[str]:
        return [one.pattern for one in read.of(str(tmp_path / name))]

    assert of("x/a.py") == ["a.py"]
    assert of("models/b.py") == of("models/x/b.py") == ["models/*.py"]
    assert of("top.py") == of("x/top.py") == ["./top.py"]
    assert of("deep.py") == of("x/y/deep.py") == ["**/deep.py"]
    assert of("b.py") == []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "b.py").write_text("")
    assert choose("models.b:A", (), (), None).causal is True
    assert choose("models/b.py:A", (), (), False).causal is False
    assert choose("multihead", (), (), None).causal is None


def test_codes_may_be_cut_short() -> None:
    assert selection((), ()) is None
    chosen = selection("AS20, as21", ["AS201,AS202", "AS209"])
    assert chosen is not None
    assert {"AS203", "AS210", "AS219"} <= chosen and not {"AS201", "AS202", "AS209", "AS220"} & chosen
    for wrong in ("AS9", "A", "208", "AS2088"):
        with pytest.raises(UsageError, match=f"unknown code of --select `{wrong}`"):
            selection([wrong], ())
