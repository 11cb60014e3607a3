"""What a wrong command line is answered with."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def fails(cli: Callable[..., Any]) -> Callable[..., str]:
    """The one line that a wrong command line is answered with; checks everything else that holds for it."""

    def call(*args: str) -> str:
        result = cli(*args)
        assert result.code == 2, result
        assert result.out == ""
        assert result.err.endswith("\n") and result.err.count("\n") == 1, result.err
        assert re.match(r"attnscope( [a-z]+)?: error: ", result.err)
        assert result.err.isprintable() or result.err[:-1].isprintable()
        return result.err[:-1]

    return call
