"""Options and the strictness that all tests share."""

from __future__ import annotations

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
