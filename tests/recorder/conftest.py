"""Modules from text, so that every line number is the test's own; and the rows of one run."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

HEAD = """\
import math
import torch
import torch.nn.functional as F
from torch import nn
"""
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Every test draws the same numbers and leaves the generator as it was."""
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
