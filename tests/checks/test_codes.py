"""Every code of a silent fault: its docstring is complete, its example gives exactly that code, its sample
too."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import attnscope
from attnscope import checks
from attnscope.checks.session import check_target
from attnscope.codebook import codes
from attnscope.targets import Request

OURS = [one for one in codes() if one.code.startswith("AS2")]
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
FILES = sorted(SAMPLES.glob("as2*.py"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.code)
def test_the_example_gives_exactly_its_code(entry, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.code)
def test_the_docstring_has_all_its_parts(entry) -> None:
    assert entry.title and entry.title[-1] != "."
    assert "It is bad" in entry.meaning
    assert "class Example" in entry.example
    assert entry.cure


def test_the_table_names_every_file_once() -> None:
    folder = Path(checks.__file__).parent
    assert sorted(row.module for row in checks.CHECKS) == sorted(path.stem for path in folder.glob("as2*.py"))
    assert {row.code for row in checks.CHECKS} <= {one.code for one in codes()}
    for row in checks.CHECKS:
        assert row.module.startswith(row.code.lower() + "_")


def test_there_is_one_sample_for_each_code() -> None:
    assert [path.name[:5].upper() for path in FILES] == [one.code for one in OURS]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_samples(path: Path) -> None:
    command = re.search(r"attnscope check \S+:Broken((?:.*\\\n)*.*)", path.read_text(encoding="utf-8"))
    assert command is not None
    inputs = tuple(re.findall(r'--input "([^"]+)"', command[1]))
    causal = False if "--no-causal" in command[1] else None
    dtype = re.search(r"--dtype (\w+)", command[1])
    named = dtype[1] if dtype else None
    broken = check_target(Request(f"{path}:Broken", inputs=inputs, causal=causal, dtype=named))
    assert [one.code for one in broken.findings if one.severity != "note"] == [path.name[:5].upper()]
    mended = check_target(Request(f"{path}:Mended", inputs=inputs, causal=causal, dtype=named))
    assert mended.findings == ()
