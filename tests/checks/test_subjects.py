"""Each attention of a target is judged by itself, with what it was called with; equal layers once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn

import attnscope
from attnscope.checks import as208_scale
from attnscope.checks.attentions import distinct, owned_by, path_of
from attnscope.checks.budget import Budget
from attnscope.checks.judging import judge
from attnscope.checks.lab import Lab
from attnscope.checks.session import _given
from attnscope.diagnostic import Report
from attnscope.recorder.capture import Capture
from attnscope.recorder.found import Seen
from attnscope.render.report import draw_report
from attnscope.render.terminal import Style

C, H, D = 24, 3, 8


class Attention(nn.Module):
    """One attention; `fault` says what is wrong with it."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.qkv, self.o = nn.Linear(C, 3 * C), nn.Linear(C, C)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        if "mixed" in self.fault:
            return x.reshape(b, H, t, D)
        return x.view(b, t, H, D).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = (self.heads(u) for u in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT
        if "unscaled" not in self.fault:
            scores = scores / D**0.5
        if "open" not in self.fault:
            late = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(2 if "late" in self.fault else 1)
            scores = scores.masked_fill(late, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, C))


class Stack(nn.Module):
    """A residual stack that returns all positions, the last one, all of them flat, or a loss."""

    def __init__(self, faults: Mapping[int, str] = {}, layers: int = 4, gives: str = "all") -> None:
        super().__init__()
        self.gives = gives
        self.layers = nn.ModuleList(Attention(faults.get(number, "")) for number in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        for layer in self.layers:
            x = x + layer(x)
        if self.gives == "last":
            return x[:, -1]
        if self.gives == "loss":
            return {"loss": (x**2).mean()}
        return x.flatten() if self.gives == "flat" else x


def rows() -> torch.Tensor:
    return torch.randn(2, 7, C, generator=torch.Generator().manual_seed(0))


def check(module: nn.Module) -> Report:
    torch.manual_seed(0)
    return attnscope.check(module, rows())


def found(report: Report) -> list[tuple[str, str, str]]:
    return [(one.code, one.severity, one.module) for one in report.findings]


@pytest.mark.parametrize(
    ("fault", "code"), [("open", "AS201"), ("late", "AS201"), ("mixed", "AS211"), ("unscaled", "AS208")]
)
@pytest.mark.parametrize("gives", ["all", "last", "flat", "loss"])
def test_one_wrong_layer_is_found_and_named(fault: str, code: str, gives: str) -> None:
    depth = {"open": 0, "late": 3, "mixed": 1, "unscaled": 2}[fault]
    report = check(Stack({depth: fault}, gives=gives))
    assert found(report) == [(code, "error", f"layers.{depth}")]
    assert report.complete and report.failed
    assert found(check(Stack(gives=gives))) == []


def test_two_faults_in_two_layers_are_two_findings() -> None:
    report = check(Stack({1: "late", 2: "mixed"}))
    assert found(report) == [("AS211", "error", "layers.2"), ("AS201", "error", "layers.1")]
    (leak,) = [one for one in report.tried if (one.module, one.name) == ("", "future")]
    assert not leak.held


def test_two_faults_of_one_layer_are_both_said() -> None:
    report = check(Stack({1: "late unscaled"}))
    assert found(report) == [("AS201", "error", "layers.1"), ("AS208", "error", "layers.1")]


def test_equal_layers_are_judged_once() -> None:
    module = Stack({1: "late", 3: "late"})
    lab = Lab(_given(module, (rows(),), {}, None, None))
    owned = distinct(lab, owned_by(lab))
    named = [[path_of(lab.recording, call) for call in (one.call, *one.also)] for one in owned]
    assert named == [["layers.0", "layers.2"], ["layers.1", "layers.3"]]
    (finding,) = check(module).findings
    assert finding.module == "layers.1"
    assert "the same in `layers.3`" in finding.notes


def test_a_part_is_called_as_in_the_whole_and_knows_its_siblings() -> None:
    module = Stack({2: "open"})
    lab = Lab(_given(module, (rows(),), {}, None, None))
    seen: list[Lab] = [one.lab for one in judge(lab, None, lambda _: None).findings]
    part = seen[-1].subject.part
    assert part is not None and part.path == "layers.2" and part.kind == "self"
    x = rows()
    for layer in module.layers[:2]:
        x = x + layer(x)
    assert torch.allclose(seen[-1].subject.args[0], x, atol=1e-6)
    assert [(one.path, bool(one.causal)) for one in part.siblings] == [
        ("layers.0", True), ("layers.1", True), ("layers.3", True),
    ]  # fmt: skip


def test_what_is_found_on_the_whole_is_folded_under_the_attention_that_explains_it() -> None:
    (finding,) = check(Stack({0: "late"}, layers=2)).findings
    assert finding.module == "layers.0"
    assert any(note.startswith("AS201 of the whole may only follow from this") for note in finding.notes)


@pytest.mark.lenient
def test_a_check_that_raises_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(lab: Lab) -> None:
        raise ValueError("inside")

    monkeypatch.setattr(as208_scale, "check", raising)
    report = check(Stack(layers=2))
    (row,) = [one for one in report.tried if one.name == "scale"]
    assert row.status == "not tried" and not row.held and row.module == "layers.0"
    assert row.result.startswith("could not be tried: ValueError in test_subjects.py:")
    assert not report.complete and not report.failed
    with pytest.raises(AssertionError, match="is not complete"):
        attnscope.assert_sound(Stack(layers=2), rows())
    lines = [line.plain for line in draw_report(Style(80), report)]
    assert lines[-1] == "no fault found in what could be tried"
    assert all(len(line) <= 80 for line in lines)


def test_the_budget_counts_operations() -> None:
    subject = _given(Stack(layers=2), (rows(),), {}, None, None)
    spent = []
    for _ in range(2):
        budget = Budget(1e12)
        judge(Lab(subject, budget), None, lambda _: None)
        spent.append(1e12 - budget.left)
    assert spent[0] == spent[1] > 0
    made = judge(Lab(subject, Budget(spent[0] / 2)), None, lambda _: None)
    assert not made.complete
    assert {one.result for one in made.tried if one.status == "not tried"} == {
        "not tried: there were too many operations before it"
    }


def test_every_check_has_a_row() -> None:
    report = check(Stack(layers=2))
    names = {one.name for one in report.tried if one.module == ""}
    assert {"future", "batch", "positions", "cached decoding", "gradients", "layers"} <= names
    assert {one.result for one in report.tried if one.status == "not applicable"} >= {"none is repeated"}
    lines = [line.plain for line in draw_report(Style(80), report)]
    assert "  in `layers.0`" in lines
    assert all(len(line) <= 80 for line in lines)


class Across(nn.Module):
    """One sequence looks at another one."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.q, self.kv, self.o = nn.Linear(C, C), nn.Linear(C, 2 * C), nn.Linear(C, C)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            u.unflatten(-1, (H, D)).transpose(1, 2) for u in (self.q(x), *self.kv(memory).chunk(2, -1))
        )
        scores = q @ k.mT / D**0.5
        if self.causal:
            late = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(late, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class Translator(nn.Module):
    """Encoder, decoder and what joins them; nothing is called so."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.c = Attention("open"), Attention(), Across(causal)

    def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        one, two = one + self.a(one), two + self.b(two)
        return two + self.c(two, one)


@pytest.mark.parametrize("first", [torch.randn(2, 5, C), torch.randn(2, 7, C), rows()])
def test_who_looks_at_whom_is_told_by_what_is_called(first: torch.Tensor) -> None:
    torch.manual_seed(0)
    report = attnscope.check(Translator(), first, rows())
    assert found(report) == []
    futures = {one.module: one.result for one in report.tried if one.name == "future"}
    assert futures == {
        "": "0 of 21 pairs leak (above 1e-7)",
        "a": "it is looked at as a second sequence",
        "b": "0 of 21 pairs leak (above 1e-7)",
        "c": "keys are another sequence",
    }
    report = attnscope.check(Translator(causal=True), first, rows())
    assert found(report) == [("AS226", "error", "c")]


def test_one_tensor_for_both_sequences() -> None:
    x = rows()
    torch.manual_seed(0)
    report = attnscope.check(Translator(), x, x)
    assert found(report) == []
    futures = {one.module: one.status for one in report.tried if one.name == "future"}
    assert futures == {"": "not applicable", "a": "not applicable", "b": "done", "c": "not applicable"}
    assert found(attnscope.check(Translator(causal=True), x, x)) == [("AS226", "error", "c")]


@pytest.mark.lenient
def test_what_the_recorder_missed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Capture._saw

    def fails(self: Capture, seen: Seen) -> None:
        if seen.name == "softmax":
            raise ValueError("inside")
        original(self, seen)

    monkeypatch.setattr(Capture, "_saw", fails)
    said = "attention may be missing: what these steps did could not be followed: softmax: ValueError"
    assert said in check(Stack(layers=1)).notes
    assert said in attnscope.trace(Stack(layers=1), rows()).notes
