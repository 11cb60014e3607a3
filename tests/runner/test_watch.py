"""`attnscope.watch` in one process: what is said, what is left as it was, what is kept."""

from __future__ import annotations

import gc
import threading
import traceback
import tracemalloc
import weakref
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import attnscope
from attnscope.runner import calls, recorder

CALL, COMPILE = nn.Module._call_impl, torch.compile


class Attention(nn.Module):
    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.broken = broken
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q = q.view(b, t, 2, c // 2).transpose(1, 2)
        k = k.view(b, t, 2, c // 2).transpose(1, 2)
        v = v.view(b, t, 2, c // 2).transpose(1, 2)
        att = F.softmax(q @ (k if self.broken else k.transpose(-2, -1)), dim=-1)
        return self.drop(att @ v).transpose(1, 2).reshape(b, t, c)


class Model(nn.Module):
    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention(), Attention(broken)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


@pytest.fixture(autouse=True)
def restored() -> Any:
    yield
    assert nn.Module._call_impl is CALL
    assert torch.compile is COMPILE
    assert not calls._watchers


def x() -> Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


def facts(steps: Any) -> list[Any]:
    return [
        (s.module, s.op, s.detail, s.variable, s.span, s.inputs, s.outputs, s.memory, s.error) for s in steps
    ]


def test_a_crash_is_explained_and_passes_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(broken=True)
    with pytest.raises(RuntimeError) as plain:
        model(x())
    with pytest.raises(RuntimeError) as caught, attnscope.watch(model) as watch:
        model(x())
    assert str(caught.value) == str(plain.value)
    inside = [traceback.extract_tb(error.value.__traceback__)[1:] for error in (plain, caught)]
    assert inside[0] == inside[1]
    report = watch.report
    assert report is not None and report.failed
    assert [finding.code for finding in report.findings] == ["AS111"]
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error[AS111]: {report.findings[0].message}" in " ".join(err.split())


def test_the_steps_are_those_of_a_trace() -> None:
    for broken in (False, True):
        model = Model(broken)
        try:
            expected = attnscope.trace(model, x(), attention=False).steps
        except RuntimeError as error:
            expected = error.attnscope_trace.steps  # type: ignore[attr-defined]
        watch = attnscope.watch(model)
        try:
            with watch:
                model(x())
        except RuntimeError:
            assert broken
        assert watch.report is not None and watch.report.trace is not None
        assert facts(watch.report.trace.steps) == facts(expected)


def test_what_is_caught_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with attnscope.watch() as watch:
        with pytest.raises(RuntimeError):
            Model(broken=True)(x())
        Model()(x())
    assert watch.report is not None and watch.report.findings == ()
    assert capsys.readouterr() == ("", "")


def test_an_exception_that_no_module_raised_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    watch = attnscope.watch()
    with pytest.raises(ZeroDivisionError), watch:
        Model()(x())
        _ = 1 / 0
    assert watch.report is None
    assert capsys.readouterr() == ("", "")


def test_only_the_watched_model_is_recorded() -> None:
    model, other = Model(), Model()
    with attnscope.watch(model) as watch:
        other(x())
        assert not watch.memory.forwards
        nn.Sequential(model)(x())
    assert [kept.root for kept in watch.memory.forwards] == [model]


def test_each_watch_knows_what_ran_while_it_was_open() -> None:
    a, b = Model(), Model(broken=True)
    with attnscope.watch(a) as first:
        a(x())
    assert first.report is not None and first.report.trace is not None
    with attnscope.watch(b) as second:
        pass
    assert second.report is not None and second.report.trace is None
    with first:
        pass
    assert first.report.trace is None
    # Of two that are open the inner one records, and the outer one explains the same crash.
    outer, inner = attnscope.watch(), attnscope.watch(b)
    with pytest.raises(RuntimeError), outer, inner:
        nn.Sequential(b)(x())
    assert outer.report is not None and inner.report is not None
    assert [one.code for one in outer.report.findings] == ["AS111"]
    assert outer.report.findings == inner.report.findings


def test_what_is_written_is_in_place_as_in_a_trace() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            F.relu(y, inplace=True)
            torch.add(y, 1, out=y)
            return y

    with attnscope.watch() as watch:
        Writes()(x())
    assert watch.report is not None and watch.report.trace is not None
    said = [(step.op, step.memory) for step in watch.report.trace.steps]
    assert said == [("mul", "new"), ("relu_", "in-place"), ("add", "in-place")]
    assert said == [(step.op, step.memory) for step in attnscope.trace(Writes(), x()).steps]


def test_what_it_was_raised_from_is_explained() -> None:
    watch = attnscope.watch()
    with pytest.raises(SystemError), watch:
        try:
            Model(broken=True)(x())
        except RuntimeError as error:
            raise SystemError("training failed") from error
    assert watch.report is not None
    assert watch.report.extra["exception"]["type"] == "RuntimeError"


def test_a_crash_in_backward_has_the_steps_of_its_forward() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.exp(x)
            z = y * 2
            y.add_(1)
            return z

    watch = attnscope.watch()
    with pytest.raises(RuntimeError), watch:
        z = InPlace()(x().requires_grad_())
        nn.MSELoss()(z, torch.zeros_like(z)).backward()
    assert watch.report is not None and watch.report.trace is not None
    assert watch.report.extra["phase"] == "backward"
    assert [step.op for step in watch.report.trace.steps] == ["exp", "mul", "add_"]
    assert watch.report.findings[0].code == "AS121"


def test_adding_a_number_in_place_is_no_counting() -> None:
    class Adds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            n = 0
            n += 1
            w = F.softmax(x, -1)
            w += 1
            return w * n

    watch = attnscope.watch()
    with pytest.raises(RuntimeError), watch:
        Adds()(x().requires_grad_()).sum().backward()
    assert watch.report is not None
    (finding,) = watch.report.findings
    assert finding.code == "AS121" and finding.help == "write out of place: `w = w + 1`"


def test_a_thread_has_its_own_recording() -> None:
    seen: list[BaseException] = []

    def work() -> None:
        try:
            Model(broken=True)(x())
        except RuntimeError as error:
            seen.append(error)

    with attnscope.watch() as watch:
        thread = threading.Thread(target=work)
        thread.start()
        Model()(x())
        thread.join()
    kept = watch.memory.fault(seen[0])
    assert kept is not None
    assert kept.events == 16 + 9  # a whole layer and its sum, the second up to its product


def test_nothing_of_the_script_is_kept_alive() -> None:
    model = Model(broken=True)
    data = x()
    with attnscope.watch() as watch:
        with suppress(RuntimeError):
            model(data)
        gone: list[weakref.ref[Any]] = [weakref.ref(model), weakref.ref(data)]
        assert len(watch.memory.faults) == 1
        del model, data
        gc.collect()
        assert [reference() for reference in gone] == [None, None]
    assert type(watch.memory.forwards[-1].restored().root) is Model


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MOST_EVENTS", 50)

    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleList([nn.Identity()])
            self.layer = Attention(broken=True)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(200):
                x = self.inner[0](x) + 1
            return self.layer(x)

    watch = attnscope.watch()
    with pytest.raises(RuntimeError), watch:
        Long()(x())
    assert watch.report is not None and watch.report.trace is not None
    steps = watch.report.trace.steps
    assert 0 < len(steps) <= 51
    assert (steps[-1].op, steps[-1].module) == ("matmul", "layer")
    assert "the forward was long: its first steps were forgotten" in watch.report.notes
    with attnscope.watch() as watch:
        for _ in range(100):
            Model()(x())
        assert len(watch.memory.forwards) <= 16


def test_memory_does_not_grow() -> None:
    model = Model()
    with attnscope.watch():
        tracemalloc.start()
        try:
            for _ in range(40):
                model(x()).sum().backward()
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(120):
                model(x()).sum().backward()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 200_000  # 120 recordings would be some three million


def test_compiled_parts_keep_their_graphs() -> None:
    whole = {"backend": "eager", "fullgraph": True}
    plain = Model().eval()
    expected = plain(x())

    def double(y: Tensor) -> Tensor:
        return y * 2

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.compile(plain, **whole)  # type: ignore[call-overload]
            self.two = plain
            self.twice = torch.compile(double, **whole)  # type: ignore[call-overload]

        def forward(self, x: Tensor) -> Tensor:
            return self.twice(self.one(x)) - self.two(x)

    with attnscope.watch() as watch:
        outer = Outer()
        assert torch.equal(outer(x()), expected * 2 - expected)
        plain.compile(**whole)
        assert torch.equal(outer(x()), expected * 2 - expected)
    del plain._compiled_call_impl
    assert watch.report is not None and watch.report.trace is not None
    assert [s.op for s in watch.report.trace.steps] == ["compiled", "compiled", "compiled", "sub"]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_mode_of_the_users_stays_in_its_place() -> None:
    class Count(TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Count.seen += 1
            return func(*args, **(kwargs or {}))

    scripted = torch.jit.script(nn.Linear(8, 8))

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scripted = scripted

        def forward(self, x: Tensor) -> Tensor:
            with Count():
                y = self.scripted(x) + 1
            return y * 2

    with attnscope.watch() as watch:
        Inner()(x())
    assert Count.seen == 1
    assert watch.report is not None and watch.report.trace is not None
    assert [s.op for s in watch.report.trace.steps] == ["scripted", "add", "mul"]


def test_a_second_pass_of_checkpointing_is_not_a_forward() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Attention()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = checkpoint(self.layer, x, use_reentrant=False)
            return y

    with attnscope.watch() as watch:
        Again()(x().requires_grad_()).sum().backward()
    assert len(watch.memory.forwards) == 1


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, nn.TransformerEncoderLayer])
def test_fused_inference_stays_fused(kind: type) -> None:
    torch.manual_seed(0)
    module = kind(8, 2, batch_first=True).eval()

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Tensor) -> Tensor:
            out = self.inner(x, x, x)[0] if kind is nn.MultiheadAttention else self.inner(x)
            assert isinstance(out, Tensor)
            return out

    with torch.no_grad():
        expected = Outer()(x())
        with attnscope.watch() as watch:
            assert torch.equal(Outer()(x()), expected)
    assert watch.report is not None and watch.report.trace is not None
    assert [s.op for s in watch.report.trace.steps] == [kind.__name__]
