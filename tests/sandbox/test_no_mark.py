"""A run leaves the module, its inputs and every global state as they were, whatever the module does."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

import attnscope
from attnscope.recorder.capture import Capture
from attnscope.recorder.record import record

X = (2, 5, 16)


class Meddler(nn.Module):
    """Changes whatever a forward can reach."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)
        self.drop = nn.Dropout(0.1)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("cache", torch.zeros(5, 3))
        self.plain = torch.zeros(4)
        self.second_plain = torch.zeros(4)
        self.third_plain = -torch.ones(4)
        self.log: list[Tensor] = []
        self.table: dict[str, Any] = {"keep": {"deep": torch.zeros(2)}}
        self.names = {"a"}
        self.count = 0
        self.hidden = [nn.Linear(16, 16)]
        self.raises: BaseException | None = None

    def forward(self, x: Tensor, extra: dict[str, Any]) -> Tensor:
        y = self.norm(x)
        x.mul_(2)
        x[0] = 7
        self.cache.add_(1)
        self.cache[:, 0] = 3
        self.cache.view(-1)[3:].fill_(9)
        self.plain.zero_().add_(4)
        torch.add(self.second_plain, 1, out=self.second_plain)
        nn.functional.relu(self.third_plain, inplace=True)
        self.table["keep"]["deep"].fill_(1)
        self.table["keep"]["new"] = 1
        self.table.pop("keep")
        self.names.add("b")
        self.log.append(x)
        self.count += 1
        self.fresh = x
        del self.plain
        self.register_buffer("second", torch.ones(2))
        self.fc.weight.data.clamp_(0, 0)
        with torch.no_grad():
            self.fc.bias.copy_(torch.ones(16))
            self.hidden[0].weight.fill_(0)
        self.fc.weight = nn.Parameter(torch.ones(16, 16))
        self.fc.note = 1  # type: ignore[assignment]
        self.drop.p = 0.9
        self.eval()
        self.hidden.append(nn.Linear(1, 1))
        self.fc.register_forward_hook(lambda *a: None)
        self.register_forward_pre_hook(lambda *a: None)
        extra["list"].append(1)
        extra["tensor"].zero_()
        torch.rand(2), np.random.rand(), random.random()
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        sys.setrecursionlimit(sys.getrecursionlimit() + 7)
        print("printing", y.shape)
        if self.raises is not None:
            raise self.raises
        return y + 1


def facts(module: Meddler, x: Tensor, extra: dict[str, Any]) -> list[Any]:
    """Everything that must be the same, tensors by identity and by value."""
    found: list[Any] = []
    for part in [*module.modules(), *module.hidden]:
        state = vars(part)
        found.append((id(part), list(state), [id(v) for v in state.values()]))
        for value in state.values():
            if isinstance(value, dict | list):
                items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
                found.append([(key, id(item)) for key, item in items])
        found += [tensor.tolist() for tensor in [*part.parameters(), *part.buffers()]]
    found += [module.plain.tolist(), module.second_plain.tolist(), module.third_plain.tolist()]
    found += [module.table["keep"]["deep"].tolist(), list(module.table["keep"])]
    found += [set(module.names), x.tolist(), list(extra), list(extra["list"]), extra["tensor"].tolist()]
    found += [
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state(legacy=False)["state"]["key"].tolist(),
    ]
    found += [torch.is_grad_enabled(), torch.get_default_dtype(), sys.getrecursionlimit()]
    found += [nn.Module._call_impl, nn.Module.__call__, _get_current_function_mode_stack()]
    return found


class Silent(BaseException):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Unsaid(Exception):
    """Cannot be printed either."""

    __str__ = Silent.__str__
    __repr__ = Silent.__str__


RAISED = [
    None,
    ValueError("[bold]\x1b[31m\0"),
    Silent(),
    Unsaid(),
    SystemExit(3),
    GeneratorExit(),
    StopIteration(),
]


@pytest.mark.parametrize("raised", RAISED, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("keep", [None, "full"])
def test_everything_comes_back(raised: BaseException | None, keep: Any) -> None:
    module, x = Meddler(), torch.randn(X)
    extra = {"list": [0], "tensor": torch.ones(2)}
    module.raises = raised
    before = facts(module, x, extra)
    recording = record(module, (x,), {"extra": extra}, capture=Capture(keep) if keep else None, values=True)
    assert facts(module, x, extra) == before
    assert recording.error is raised
    assert len(recording.events) > 20


def test_an_interrupt_passes_and_nothing_remains() -> None:
    module, x = Meddler(), torch.randn(X)
    extra = {"list": [0], "tensor": torch.ones(2)}
    module.raises = KeyboardInterrupt()
    before = facts(module, x, extra)
    with pytest.raises(KeyboardInterrupt):
        record(module, (x,), {"extra": extra})
    assert facts(module, x, extra) == before


def test_numbers_are_those_of_a_plain_run() -> None:
    module = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.BatchNorm1d(5), nn.GELU())
    x = torch.randn(X)
    state = torch.get_rng_state()
    recording = record(module, (x,), capture=Capture("full"), values=True)
    torch.set_rng_state(state)
    assert torch.equal(recording.result, module(x))


def test_a_replaced_or_resized_input_comes_back() -> None:
    class Replaces(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x.data = torch.zeros(1)
            y.resize_(3)
            y.fill_(1)
            return x

    x, y = torch.randn(X), torch.randn(X)
    before = x.clone(), y.clone()
    record(Replaces(), (x, y))
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])


def test_a_backward_after_the_run_is_not_spoiled_by_what_was_undone() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(16, 16)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1  # type: ignore[assignment, operator]
            return self.fc(x).square()

    module = Writes()
    result = record(module, (torch.randn(X),)).result
    result.sum().backward()
    assert module.fc.weight.grad is not None and module.count.item() == 0  # type: ignore[operator]


class Unasked:
    """Answers every question with an exception."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Overrides:
    """Takes every function of PyTorch's for itself."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        return cls()

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class NoShape(torch.Tensor):
    """A tensor that refuses to tell its shape."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no shape")


class Takes(nn.Module):
    """Uses both of its arguments."""

    def forward(self, x: Tensor, other: Any) -> Tensor:
        if type(other) is Overrides:
            torch.add(x, other)  # type: ignore[call-overload]
        elif isinstance(type(other), type(torch.Tensor)):
            torch.sigmoid(other)
        return x * 2


HOSTILE: list[Callable[[], Any]] = [Unasked, Overrides, lambda: torch.randn(X).as_subclass(NoShape)]


@pytest.mark.lenient
@pytest.mark.parametrize("make", HOSTILE)
def test_objects_that_refuse_questions_do_not_break_a_run(make: Callable[[], Any]) -> None:
    x = torch.randn(X)
    for args, kwargs in [((x, make()), {}), ((x,), {"other": make()})]:
        recording = record(Takes(), args, kwargs, capture=Capture("weights"), values=True)
        assert recording.error is None
        assert torch.equal(recording.result, x * 2)
        assert recording.events[-1].op.name == "mul"


def test_a_recursion_that_fits_without_the_recorder_fits_with_it() -> None:
    class Nested(nn.Module):
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.inner = Nested(depth - 1) if depth else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + 1

    # Four frames for a call of a module: close to the limit without the recorder.
    module = Nested((sys.getrecursionlimit() - 300) // 4)
    x = torch.zeros(1)
    expected = module(x)
    recording = record(module, (x,))
    assert recording.error is None and torch.equal(recording.result, expected)


def test_a_result_that_holds_itself_ends() -> None:
    class Circle(nn.Module):
        def forward(self, x):
            ring: list[object] = []
            ring.append(ring)
            return ring

    recording = record(Circle(), (torch.ones(1),))
    assert recording.error is None and recording.result_serial is None


class Slotted:
    """Keeps its state in slots."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Unseen(nn.Module):
    """Writes where no tensor operation of its own name does."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)
        self.norm = type("Own", (nn.BatchNorm1d,), {})(5)
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("var", torch.ones(5))
        self.table = nn.Embedding(5, 4, max_norm=0.1)
        self.torch_draws, self.draws = torch.Generator(), random.Random(0)
        self.numpy_draws = np.random.default_rng(0)
        self.array, self.bytes = np.zeros(3), bytearray(b"abc")
        self.spaced, self.slotted = SimpleNamespace(items=[1]), Slotted()

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.batch_norm(self.norm(x), self.mean, self.var, training=True)  # type: ignore[arg-type]
        self.table(torch.tensor([1]))
        nn.init.constant_(self.fc.bias, 1.0)
        torch.relu_(input=self.fc.weight.data)
        self.fc.requires_grad_(False)
        self.fc.weight.grad = torch.ones_like(self.fc.weight)
        torch.rand(1, generator=self.torch_draws), self.draws.random(), self.numpy_draws.random()
        self.array += 1
        self.bytes[0] = 0
        self.spaced.items.append(2)
        self.slotted.count += 1
        x.requires_grad_()
        return y

    def facts(self) -> list[Any]:
        found: list[Any] = [tensor.tolist() for tensor in self.state_dict().values()]
        found += [(p.requires_grad, p.grad) for p in self.parameters()]
        found += [self.torch_draws.get_state().tolist(), self.draws.getstate()]
        found += [self.numpy_draws.bit_generator.state, self.array.tolist(), bytes(self.bytes)]
        return [*found, list(self.spaced.items), self.slotted.count]


def test_what_is_written_out_of_sight_comes_back() -> None:
    module, x = Unseen(), torch.randn(X)
    before = module.facts()
    assert record(module, (x,)).error is None
    for one, other in zip(module.facts(), before, strict=True):
        assert one == other
    assert not x.requires_grad


class Uncopied(nn.Module):
    """Says of itself that it is its own copy."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop = nn.Linear(16, 16), nn.Dropout(0.1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Uncopied:
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.drop((x @ x.mT).softmax(-1) @ self.fc(x))


def test_a_check_leaves_the_mode_of_what_cannot_be_copied_and_the_gradient_of_its_input() -> None:
    module, x = Uncopied().train(), torch.randn(X).requires_grad_()
    attnscope.check(module, x)
    assert module.training and module.drop.training
    assert x.grad is None and module.fc.weight.grad is None
