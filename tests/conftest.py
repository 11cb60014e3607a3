"""Options and the strictness that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from attnscope.strict import SWITCH


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
