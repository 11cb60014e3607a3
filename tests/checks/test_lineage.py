"""By how much a tensor was scaled since the layer that made it, and what a product sums over: exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnscope.checks.leaks import is_lower, triangle
from attnscope.checks.lineage import Lineage
from tests.showing import recorded


@pytest.mark.parametrize(
    ("expression", "factor", "parts", "explicit"),
    [
        ("self.q(x)", 1.0, [], False),
        ("self.q(x).transpose(1, 2)", 1.0, [], False),
        ("self.q(x) * 0.25", 0.25, [0.25], True),
        ("self.q(x) / 4", 0.25, [0.25], True),
        ("self.q(x) / math.sqrt(8) * 1", 8**-0.5, [8**-0.5], True),
        ("(self.q(x) * 0.5).view(2, 5, 2, 4) * 0.5", 0.25, [0.5, 0.5], True),
        ("(self.q(x) * 0.5) @ (self.q(x) * 0.5).mT", 1.0, [], False),
        ("F.layer_norm(self.q(x), (8,))", None, [], False),
        ("self.q(x) * self.free", None, [], False),
    ],
)
def test_the_gain_of_a_tensor(
    load: Callable[..., Any], expression: str, factor: float | None, parts: list[float], explicit: bool
) -> None:
    module = load(
        f"""
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.free = nn.Linear(8, 8), nn.Parameter(torch.tensor(3.0))
            def forward(self, x):
                return {expression}
        """,
        "M",
    )()
    recording = recorded(module, torch.randn(2, 5, 8))
    lineage = Lineage(recording)
    gain = lineage.gain(lineage.events[-1].outputs[0])
    assert gain.factor == (None if factor is None else pytest.approx(factor))
    assert sorted(part for part, _ in gain.parts) == pytest.approx(sorted(parts))
    assert gain.explicit == explicit
    assert (gain.normed, gain.learned) == ("norm" in expression, "free" in expression)


def test_a_triangle_is_told_by_its_two_values() -> None:
    ones = torch.ones(5, 5)
    assert triangle(ones.tril()) == (1.0, 0.0)
    assert triangle(ones.triu(1) * -math.inf) is None  # 0 times infinity is no number
    assert triangle(torch.zeros(5, 5).masked_fill(ones.triu(1).bool(), -math.inf)) == (0.0, -math.inf)
    assert triangle(ones.tril(1)[None, None]) == (1.0, 0.0)
    for no in (None, ones, ones[:2, :2].tril(), ones[:, :4].tril(), torch.eye(5)):
        assert triangle(no) is None


def test_what_is_seen_is_a_triangle_from_the_upper_left_corner() -> None:
    def lower(queries: int, by: int = 0) -> bool:
        return is_lower(torch.ones(queries, 5).tril(by).bool().numpy())

    assert lower(5) and lower(3)
    assert not lower(2) and not lower(5, 1) and not lower(5, 4)


def test_keys_that_no_query_sees_do_not_hide_a_triangle() -> None:
    seen = torch.ones(6, 6).tril().bool()
    seen[:, 4:] = False
    assert is_lower(seen.numpy())
    seen[:, 2:] = False
    assert not is_lower(seen.numpy())  # two keys are too few to tell
    full = torch.ones(6, 6).bool()
    full[:, 4:] = False
    assert not is_lower(full.numpy())
