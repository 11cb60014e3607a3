"""One fault in a whole attention is named by its code, in words that keep to the style; mended, it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnscope.codebook import Explanation, codes
from tests.crashes.crash_harness import crash, run
from tests.importing import load
from tests.zoo.crashing import CRASHING

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
OURS = [one for one in codes() if one.code.startswith("AS1")]


def given(code: str) -> torch.Tensor:
    torch.manual_seed(0)
    x: torch.Tensor = eval(CRASHING[code].x, {"torch": torch})
    return x


def test_there_is_one_for_each_code() -> None:
    assert [*CRASHING] == [one.code for one in OURS]


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.code)
def test_the_example_of_the_page_gives_exactly_its_code(entry: Explanation, tmp_path: Path) -> None:
    finding = run(entry.example, tmp_path)
    assert finding is not None, "the example did not crash"
    assert finding.code == entry.code
    assert finding.severity == "error"
    if entry.code != "AS100":
        assert finding.help
    assert finding.span is not None


@pytest.mark.parametrize("code", CRASHING)
def test_the_fault_is_named(code: str, tmp_path: Path) -> None:
    path = tmp_path / f"whole_{code}.py"
    path.write_text(CRASHING[code].broken, encoding="utf-8")
    finding = crash(load(path, path.stem).Module, given(code), device="meta" if code == "AS119" else None)
    assert finding is not None
    assert finding.code == code
    assert finding.span is not None
    for text in (finding.message, finding.label, finding.help, *(label.text for label in finding.labels)):
        assert text and text.isprintable()
        assert not text.endswith(".") or text.endswith("…")
        assert not text[0].isupper() or text.startswith(("PyTorch", "B ", "T "))
    assert len(finding.labels) <= 3
    assert all(label.span != finding.span for label in finding.labels)


@pytest.mark.parametrize("code", CRASHING)
def test_without_the_fault_it_runs_everywhere(code: str, tmp_path: Path) -> None:
    path = tmp_path / f"mended_{code}.py"
    path.write_text(CRASHING[code].mended, encoding="utf-8")
    module = load(path, path.stem)
    assert crash(module.Module, given(code)) is None
    assert crash(module.Module, given(code), device="meta") is None


def test_the_seed_names_the_line_and_the_buffer() -> None:
    path = SAMPLES / "nanogpt_bug.py"
    module = load(path, "sample_nanogpt_bug")
    finding = crash(lambda: module.CausalSelfAttention(module.GPTConfig()), torch.randn(1, 6, 16))
    assert finding is not None and finding.span is not None
    lines = path.read_text(encoding="utf-8").splitlines()
    assert finding.code == "AS101"
    assert finding.message == "`CausalSelfAttention` has no attribute `bias`"
    assert "self.bias" in lines[finding.span.line - 1]
    assert lines[finding.span.line - 1][finding.span.column - 1 : finding.span.end_column - 1] == "self.bias"
    assert finding.labels[0].text == "`mask` [1, 1, 1024, 1024] is registered here and never read"
    assert '"mask"' in lines[finding.labels[0].span.line - 1]
    assert finding.help == "read `self.mask[:, :, :T, :T]`"
    mended = load(SAMPLES / "nanogpt_mended.py", "sample_nanogpt_mended")
    assert crash(lambda: mended.CausalSelfAttention(mended.GPTConfig()), torch.randn(1, 6, 16)) is None
