"""Every sample crashes with its own code, and its mended twin does not crash at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from attnscope.codebook import codes
from tests.crashes.crash_harness import crash, load

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
FILES = sorted(SAMPLES.glob("as1*.py"))


def given(path: Path) -> torch.Tensor:
    """The input that the sample's own command names."""
    found = re.search(r'--input "([^"]+)"', path.read_text(encoding="utf-8"))
    assert found is not None
    torch.manual_seed(0)
    return eval(found[1], {"torch": torch})


def test_there_is_one_sample_for_each_crash_code() -> None:
    assert [path.name[:5].upper() for path in FILES] == [c.code for c in codes() if c.code.startswith("AS1")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_broken_class_gives_the_code(path: Path) -> None:
    module = load(path, f"sample_{path.stem}")
    device = "meta" if path.stem.startswith("as119") else None
    finding = crash(module.Broken, given(path), device=device)
    assert finding is not None
    assert finding.code == path.name[:5].upper()
    assert finding.help
    assert finding.span is not None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_mended_class_runs_everywhere(path: Path) -> None:
    module = load(path, f"sample_{path.stem}")
    assert crash(module.Mended, given(path)) is None
    assert crash(module.Mended, given(path), device="meta") is None


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


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_words_keep_to_the_style(path: Path) -> None:
    module = load(path, f"sample_{path.stem}")
    finding = crash(module.Broken, given(path), device="meta" if path.stem.startswith("as119") else None)
    assert finding is not None
    for text in (finding.message, finding.label, finding.help, *(label.text for label in finding.labels)):
        assert text and text.isprintable()
        assert not text.endswith(".") or text.endswith("…")
        assert not text[0].isupper() or text.startswith(("PyTorch", "B ", "T "))
    assert len(finding.labels) <= 3
    assert all(label.span != finding.span for label in finding.labels)
