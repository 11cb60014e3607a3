"""`attnscope.reshape` against torch itself, element by element, and its own sentences."""

from __future__ import annotations

import warnings

import einops
import numpy as np
import pytest
import torch

import attnscope
from attnscope.errors import UsageError
from attnscope.schema import ReshapeStep
from tests.reshaping import chains


def last(chain: str, shape: tuple[int, ...]) -> ReshapeStep:
    return attnscope.reshape(chain, shape).steps[-1]


def test_random_chains_equal_torch_and_offered_cures_work() -> None:
    refused = cures = 0
    for shape, chain, before, expected in chains.chains(500):
        step = last(chain, shape)
        assert (step.error is None) == (expected is not None), (shape, chain, step.error)
        if expected is None:
            refused += 1
            for cure in step.cures:
                cures += 1
                eval(f"y{cure}", {"y": before})
            continue
        tail = chain.rpartition("[")[2]
        one = step.outputs[{"-1]": -1, "1]": 1}.get(tail, 0) if len(step.outputs) > 1 else 0]
        assert (one.shape, one.strides) == (tuple(expected.shape), expected.stride()), (shape, chain)
        assert one.contiguous == expected.is_contiguous(), (shape, chain)
        assert np.array_equal(one.numbers, expected.numpy()), (shape, chain)
    assert refused > 60 and cures > 60


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("t (h d) -> h t d", {"h": 2}),
        ("t (h d) -> (h t) d", {"d": 8}),
        ("t c -> c t", {}),
        ("... (h d) -> h ... d", {"h": 4}),
        ("(a b) c -> b 1 (c a)", {"a": 3}),
        ("t c -> t c 1", {}),
    ],
)
def test_patterns_equal_einops(pattern: str, sizes: dict[str, int]) -> None:
    x = torch.arange(96).reshape(6, 16)
    expected = einops.rearrange(x, pattern, **sizes)
    words = "".join(f", {name}={size}" for name, size in sizes.items())
    step = last(f"rearrange(x, {pattern!r}{words})", (6, 16))
    (one,) = step.outputs
    assert (one.shape, one.strides) == (tuple(expected.shape), expected.stride())
    assert np.array_equal(one.numbers, expected.numpy())
    assert (step.memory == "copy") == (expected.data_ptr() != x.data_ptr())


def test_repeat_makes_an_axis() -> None:
    x = torch.arange(6).reshape(2, 3)
    expected = einops.repeat(x, "g d -> (g n) d", n=2)
    assert np.array_equal(
        last("repeat(x, 'g d -> (g n) d', n=2)", (2, 3)).outputs[0].numbers, expected.numpy()
    )


def test_the_heads_of_a_view_and_of_a_view_with_a_transpose() -> None:
    right = attnscope.reshape("view(6, 2, 8).transpose(0, 1)", (6, 16))
    assert [step.memory for step in right.steps] == ["view", "view"]
    assert right.steps[1].outputs[0].numbers[0].tolist() == [
        list(range(16 * t, 16 * t + 8)) for t in range(6)
    ]
    assert "[0] holds tokens 0–5, channels 0–7" in repr(right)
    wrong = attnscope.reshape("view(2, 6, 8)", (6, 16))
    assert "[0] holds tokens 0–2, channels 0–15" in repr(wrong)


def test_lines_of_code_with_names() -> None:
    made = attnscope.reshape(
        "q, k, v = x.split(16, -1)\nk = k.view(6, 2, 8)\ntorch.stack([k, k]).mT", (6, 48)
    )
    assert [step.op for step in made.steps] == ["split", "view", "stack", "matrix_transposed"]
    assert made.steps[1].outputs[0].numbers[0, 0].tolist() == list(range(16, 24))


def test_a_step_that_cannot_be_done_ends_the_chain() -> None:
    made = attnscope.reshape("transpose(0, 1).view(96).view(3)", (6, 16))
    assert made.failed and len(made.steps) == 2
    assert made.steps[1].error == (
        "[16, 6] with strides (1, 16) cannot be read as [96] without moving elements"
    )
    assert made.steps[1].cures[:2] == (".reshape(96)", ".contiguous().view(96)")
    assert last("view(6, 2, 9)", (6, 16)).cures[0] == "view(6, 2, 8)"


@pytest.mark.parametrize(
    "chain",
    ["", "x", "(", "foo(2)", "x + 1", "x.view", "x.split(2).view(3)", "__import__('os').system('ls')",
     "x[[0, 1]]", "x[True]", "x.y", "view(*x.shape)", "q.view(6, 16); k.view(6, 16)", "lambda: x",
     "x.view(16, 6, base=2)", "expand(10**9)", "unsqueeze(0).expand(1000000, 6, 16)", "\0", "[bold]",
     "x" * 20_000, "x.T" + ".T" * 4_000],
)  # fmt: skip
def test_what_is_no_chain_is_one_line(chain: str) -> None:
    with pytest.raises(UsageError) as error:
        attnscope.reshape(chain, (6, 16))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("shape", [(), (0, 3), (2_000, 2_000)])
def test_shapes_that_cannot_be_followed(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError), warnings.catch_warnings():
        attnscope.reshape("mT", shape)
