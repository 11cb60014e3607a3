"""What operations make of twins, held against PyTorch's own results on real tensors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from attnscope.crashes.values import twin
from attnscope.ops.outcomes import Misfit, binary, factory, outcome

torch.manual_seed(0)  # the tests bear numbers in their names: every process must collect the same
X = torch.randn(2, 4, 6, 8)
T = X.transpose(1, 2)
MASK = torch.ones(6, 6).tril().bool()
IDS = torch.arange(6)
CALLS = [
    ("matmul", torch.matmul, (X, X.transpose(-2, -1)), {}),
    ("matmul", torch.matmul, (X, torch.randn(8)), {}),
    ("bmm", torch.bmm, (torch.randn(3, 2, 5), torch.randn(3, 5, 4)), {}),
    ("softmax", torch.softmax, (T, -1), {}),
    ("masked_fill", torch.masked_fill, (torch.randn(2, 4, 6, 6), MASK, 0.0), {}),
    ("masked_fill", torch.masked_fill, (torch.randn(6), MASK, 0.0), {}),
    ("where", torch.where, (MASK, torch.randn(2, 1, 6, 6), torch.zeros(6, 1)), {}),
    ("cat", torch.cat, ([X, X.double()], 2), {}),
    ("cat", torch.cat, ([X, X],), {"dim": -1}),
    ("stack", torch.stack, ([X, X], 1), {}),
    ("einsum", torch.einsum, ("bhtd,bhsd->bhts", X, X), {}),
    ("outer", torch.outer, (torch.randn(3), torch.randn(4)), {}),
    ("polar", torch.polar, (torch.ones(3), torch.ones(3)), {}),
    ("tril", torch.tril, (torch.ones(6, 6),), {}),
    ("cumsum", torch.cumsum, (MASK, 0), {}),
    ("exp", torch.exp, (IDS,), {}),
    ("relu", torch.relu, (T,), {}),
    ("isnan", torch.isnan, (T,), {}),
    ("mean", torch.mean, (X, -1), {"keepdim": True}),
    ("any", torch.any, (MASK, -1), {}),
    ("scaled_dot_product_attention", F.scaled_dot_product_attention, (X, X, X), {"attn_mask": MASK}),
]


def same(made: torch.Tensor, real: torch.Tensor) -> None:
    assert made.device.type == "meta"
    assert tuple(made.shape) == tuple(real.shape)
    assert made.dtype == real.dtype


def twins(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return twin(value)
    return [twins(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "function", "args", "kwargs"), CALLS, ids=lambda value: str(value)[:16])
def test_an_outcome_is_pytorchs_own(name, function, args, kwargs) -> None:
    given = [twins(arg) for arg in args]
    words = {key: twins(value) for key, value in kwargs.items()}
    same(outcome(name, given, words), function(*args, **kwargs))


@pytest.mark.parametrize("name", ["add", "mul", "div", "sub", "floor_divide", "eq", "lt"])
@pytest.mark.parametrize(
    ("left", "right"),
    [(X, 2), (X, T.transpose(1, 2)), (IDS, IDS), (X.half(), torch.ones(8)), (IDS, 0.5), (MASK, MASK)],
)
def test_arithmetic_broadcasts_and_promotes_as_pytorch_does(name: str, left, right) -> None:
    try:
        real = getattr(torch, name)(left, right)
    except RuntimeError:  # booleans are not subtracted
        return
    same(binary(name, twins(left), twins(right)), real)


def test_memory_order_is_kept_where_pytorch_keeps_it() -> None:
    assert outcome("relu", [twin(T)], {}).stride() == torch.relu(T).stride()
    assert binary("mul", twin(T), 2).stride() == (T * 2).stride()
    assert outcome("softmax", [twin(T), -1], {}).is_contiguous() == torch.softmax(T, -1).is_contiguous()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("matmul", [X, X]),
        ("cat", [[X, X[:1]], 2]),
        ("stack", [[X, T]]),
        ("einsum", ["bhtd,bhsd->bhts", X, X[0]]),
        ("scaled_dot_product_attention", [X, X, X[:, :, :3]]),
        ("add", [X, X[:, :3]]),
        ("invert", [X]),
    ],
)
def test_what_does_not_fit_is_refused(name: str, args: list[object]) -> None:
    with pytest.raises(Misfit):
        outcome(name, [twins(arg) for arg in args], {})


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("arange", (6,), {}),
        ("arange", (2, 9, 2), {}),
        ("arange", (0, 1, 0.25), {}),
        ("arange", (6,), {"dtype": torch.float32}),
        ("ones", (2, 3), {"dtype": torch.bool}),
        ("zeros", ((2, 3),), {}),
        ("full", ((2, 3), float("-inf")), {}),
        ("full", ((2, 3), True), {}),
        ("eye", (4,), {}),
    ],
)
def test_a_factory_makes_what_pytorch_makes(name: str, args, kwargs) -> None:
    same(factory(name, args, kwargs), getattr(torch, name)(*args, **kwargs))
