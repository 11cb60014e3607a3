"""The golden files of this directory, and the source texts that findings quote."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rich.text import Text

HERE = Path(__file__).parent

BUG_LINES = {
    30: '        self.register_buffer("mask", torch.tril(torch.ones(T, T)).view(1, 1, T, T))',
    46: '        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))',
}


def put_source(name: str, lines: Sequence[str]) -> None:
    """Make `name` a file that linecache knows, without one on the disk."""
    text = [line + "\n" for line in lines]
    linecache.cache[name] = (sum(map(len, text)), None, text, name)


@pytest.fixture(autouse=True)
def sources() -> Iterator[Callable[[str, Sequence[str]], None]]:
    """`attention.py` and `bug.py`, and a function that adds others."""
    before = dict(linecache.cache)
    put_source("attention.py", (HERE / "source" / "attention.py").read_text("utf-8").splitlines())
    put_source("bug.py", [BUG_LINES.get(number, "") for number in range(1, 50)])
    yield put_source
    linecache.cache.clear()
    linecache.cache.update(before)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text is exactly that of `golden/name`."""

    def check(name: str, text: str) -> None:
        path = HERE / "golden" / name
        if request.config.getoption("--rewrite-golden"):
            path.write_text(text, "utf-8", newline="\n")
        assert path.exists(), f"{name} does not exist: run with --rewrite-golden and look at it"
        assert text == path.read_text("utf-8")

    return check


def plain(lines: Sequence[Text]) -> str:
    return "".join(line.plain + "\n" for line in lines)
