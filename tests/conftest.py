"""Options and the strictness that all tests share."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attnscope.cli.boundary import run
from attnscope.strict import SWITCH

# Before torch is imported: tensors here are tiny, and more threads than workers only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write what is drawn now into the golden files in place of comparing",
    )


@pytest.fixture(autouse=True)
def _strict(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fault of attnscope's own is passed over, but in tests marked `lenient`: of that very behaviour."""
    monkeypatch.setenv(SWITCH, "0" if request.node.get_closest_marker("lenient") else "1")


@pytest.fixture
def may_only_shrink(
    request: pytest.FixtureRequest,
) -> Callable[[Path, Collection[str], Collection[str]], None]:
    """Compares what is missed with a list of names in a file: none may be new, and none may be found now."""

    def compare(path: Path, tried: Collection[str], missed: Collection[str]) -> None:
        listed = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
        if request.config.getoption("--rewrite-golden"):
            names = sorted(listed - set(tried) | set(missed))
            path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
            return
        assert not set(missed) - listed, "these were found until now"
        found = sorted(listed & set(tried) - set(missed))
        assert not found, f"these are found now: remove them from the list in {path.name} (--rewrite-golden)"

    return compare


HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
_numbers = itertools.count()


@pytest.fixture
def seeded() -> Iterator[None]:
    """A test draws the same numbers each time, and leaves the generator as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`load(text)` imports a file that holds HEAD (4 lines) and the text; `load(text, "f")` gives its `f`."""
    made: list[str] = []

    def import_text(text: str, name: str | None = None, stem: str | None = None) -> Any:
        stem = stem or f"user_source_{next(_numbers)}"
        path = tmp_path / f"{stem}.py"
        path.write_text(HEAD + textwrap.dedent(text), "utf-8")
        spec = importlib.util.spec_from_file_location(stem, path)
        assert spec is not None and spec.loader is not None
        module: ModuleType = importlib.util.module_from_spec(spec)
        sys.modules[stem] = module
        made.append(stem)
        spec.loader.exec_module(module)
        return getattr(module, name) if name else module

    yield import_text
    for stem in made:
        sys.modules.pop(stem, None)


# The command line inside the test's process, its streams captured.
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
