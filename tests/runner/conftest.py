"""Fixtures of the runner's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.script_process import Runner


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)
