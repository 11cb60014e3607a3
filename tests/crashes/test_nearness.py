"""How alike two names are: the order in which names are offered, not how they are spelled."""

from __future__ import annotations

import pytest

from attnscope.crashes.syntax import nearness


@pytest.mark.parametrize(
    ("wanted", "near", "far"),
    [
        ("n_heads", "n_head", "n_embd"),
        ("num_heads", "n_head", "dropout"),
        ("mask", "causal_mask", "weight"),
        ("c_attn", "c_attn_", "c_proj"),
        ("qkv", "c_attn", "dropout"),
    ],
)
def test_the_nearer_name_is_nearer(wanted: str, near: str, far: str) -> None:
    assert nearness(wanted, near) > nearness(wanted, far)


def test_equal_but_for_underscores_and_case_is_one_and_nothing_is_none() -> None:
    assert nearness("headDim", "head_dim") == nearness("mask", "_mask") == 1.0
    assert nearness("", "mask") == nearness("mask", "_") == 0.0
