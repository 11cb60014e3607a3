"""What is said of a NaN: ranges and reasons, from the values alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attnscope.diagnostic import Report
from attnscope.recorder.recording import Recording
from attnscope.runner.nan import NanRecorder, NanStop, describe, has_nan, span_of_values

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.5], "from 1 to 2.5"),
        ([3.0, 3.0], "3 throughout"),
        ([NAN, NAN], "nan throughout"),
        ([NAN, 1.0, INF], "from 1 to inf, 1 of 3 are nan, 1 of 3 are inf"),
        ([-INF, -INF], "-inf throughout"),
        ([-INF, 0.0], "from -inf to 0, 1 of 2 are -inf"),
        ([], "without values"),
    ],
)
def test_describe(values: list[float], said: str) -> None:
    assert describe(torch.tensor(values)) == said


def test_values_that_cannot_be_read_have_no_nan() -> None:
    assert not has_nan(torch.full((2,), NAN, device="meta"))
    assert not has_nan(torch.tensor([1, 2]))
    assert has_nan(torch.tensor([complex(NAN, 0)]))
    assert span_of_values(torch.tensor([True, False])) == "true in 1 of 2"


def found_in(function: object, *args: Tensor) -> Report | None:
    """Run a function as the forward of a module; the report on its first NaN."""

    class Module(nn.Module):
        def forward(self, *args: Tensor) -> object:
            return function(*args)  # type: ignore[operator]

    module, reports = Module(), list[Report]()
    recorder = NanRecorder(Recording(module), "script.py", 0, reports.append)
    left = recorder.enter(module, args, {})
    try:
        with recorder:
            module(*args)
    except NanStop:
        assert len(reports) == 1
    recorder.leave(left)
    return reports[0] if reports else None


@pytest.mark.parametrize(
    ("function", "values", "op", "why"),
    [
        (lambda x: x / x, [0.0, 1.0], "div", "0 / 0 in 1 places"),
        (lambda x: x.log(), [-1.0, 1.0], "log", "1 of 2 are negative"),
        (lambda x: x.sqrt_(), [-1.0, -4.0], "sqrt_", ""),
        (lambda x: x - x, [INF, 1.0], "sub", "an input holds inf"),
        (lambda x: x.softmax(-1), [-INF, -INF], "softmax", "1 of 1 rows are -inf throughout"),
    ],
)
def test_the_first_step_that_makes_a_nan(function: object, values: list[float], op: str, why: str) -> None:
    report = found_in(function, torch.tensor(values))
    assert report is not None and report.trace is not None
    (finding,) = report.findings
    assert finding.message == f"`{op}` makes nan out of inputs that have none"
    assert why in finding.label
    assert report.trace.steps[-1].op == op


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.full((2,), NAN),  # written so
        lambda x: torch.tensor([NAN, 1.0]) * x,
        lambda x: x.masked_fill(x > 0, NAN),
        lambda x: torch.empty(2).fill_(1.0) + x,
        lambda x: x.view(2).exp(),
    ],
)
def test_a_nan_that_the_source_wrote_is_none_that_a_step_made(function: object) -> None:
    assert found_in(function, torch.tensor([0.5, 1.0])) is None


def test_a_parameter_that_is_nan_stops_the_next_forward() -> None:
    module, reports = nn.Linear(2, 2), list[Report]()
    with torch.no_grad():
        module.weight[0, 0] = NAN
    recorder = NanRecorder(Recording(module), "script.py", 3, reports.append)
    with pytest.raises(NanStop):
        recorder.enter(module, (), {})
    (finding,) = reports[0].findings
    assert finding.message == "parameter `weight` of `Linear` is nan when the module is called"
    assert finding.notes[1].startswith("no step of the 3 forwards before made one")
