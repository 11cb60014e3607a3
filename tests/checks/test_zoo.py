"""What a check finds in each module of the zoo is what its row says: nothing, for one that is right."""

from __future__ import annotations

import pytest

import attnscope
from tests.zoo import CALLED, Row, made


@pytest.mark.parametrize("row", CALLED.values(), ids=CALLED)
def test_what_is_found_is_what_the_row_says(row: Row) -> None:
    report = attnscope.check(made(row), *row.args, **row.kwargs, **row.said)
    assert {one.code: one.severity for one in report.findings} == row.found
    assert report.failed == ("error" in row.found.values())
    if not report.failed:
        assert any(tried.name == "forward" and tried.held for tried in report.tried)
