"""The example of every code of a silent fault gives exactly that code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import attnscope
from attnscope.checks.session import check_target
from attnscope.codebook import Explanation, codes
from attnscope.targets import Request

OURS = [one for one in codes() if one.code.startswith("AS2")]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.code)
def test_the_example_gives_exactly_its_code(entry: Explanation, tmp_path: Path) -> None:
    path = tmp_path / f"example_{entry.code.lower()}.py"
    path.write_text(entry.example, encoding="utf-8")
    torch.manual_seed(0)
    module = load(path)
    x = vars(module).get("x")
    if x is None and not vars(module).get("rebuilt"):
        x = torch.randn(2, 6, 16)
    made = module.Example()
    if entry.code == "AS215":  # what is not saved shows only where the module can be built anew
        report = check_target(Request(f"{path}:Example", inputs=("torch.randn(2, 6, 16)",)))
    else:
        inputs = x if isinstance(x, tuple) else (x,)
        report = attnscope.check(made.to(inputs[0].dtype), *inputs, causal=vars(module).get("causal"))
    found = [one for one in report.findings if one.severity != "note"]
    assert [one.code for one in found] == [entry.code]
    assert found[0].severity == "error"
    assert found[0].span is not None and found[0].span.file == str(path)
    assert found[0].help
    assert found[0].evidence or found[0].notes
