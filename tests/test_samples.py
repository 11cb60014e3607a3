"""Samples say what the pages say: `Broken` has the fault of its code and no other, and `Mended` has none."""

from __future__ import annotations

import pytest
import torch

from attnscope.checks.session import check_target
from attnscope.targets import Request
from tests.crashes.crash_harness import crash
from tests.importing import load
from tests.samples import FOLDER, Sample, samples

SAMPLES = samples()
CRASHES = [one for one in SAMPLES if one.code < "AS2"]
SILENT = [one for one in SAMPLES if one.code > "AS2"]


def test_the_samples_are_those_of_the_pages() -> None:
    here = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("as[123]*.py")}
    assert here == {one.name: one.text for one in SAMPLES}, "python -m tests.samples writes them anew"


@pytest.mark.parametrize("sample", CRASHES, ids=lambda sample: sample.code)
def test_a_crash_is_named_and_mended(sample: Sample) -> None:
    module = load(sample.path, f"sample_{sample.path.stem}")
    torch.manual_seed(0)
    inputs = [eval(text, {"torch": torch}) for text in sample.inputs]
    finding = crash(module.Broken, *inputs, device="meta" if sample.code == "AS119" else None)
    assert finding is not None and finding.code == sample.code
    assert crash(module.Mended, *inputs) is None
    assert crash(module.Mended, *inputs, device="meta") is None


@pytest.mark.parametrize("sample", SILENT, ids=lambda sample: sample.code)
def test_a_silent_fault_is_found_and_mended(sample: Sample) -> None:
    def found(name: str) -> list[str]:
        report = check_target(
            Request(f"{sample.path}:{name}", inputs=sample.inputs, causal=sample.causal, dtype=sample.dtype)
        )
        return [one.code for one in report.findings if name == "Mended" or one.severity != "note"]

    assert found("Broken") == [sample.code]
    assert found("Mended") == []
