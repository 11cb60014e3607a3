"""What a report says beside its findings: counts that can be true, and what was left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import attnscope


class TwoFaults(nn.Module):
    """Nothing is divided by √D, and heads are never brought back behind their tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)).masked_fill(
            torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf")
        )
        return (scores.softmax(-1) @ v).reshape(b, t, c)


def test_two_faults_of_one_attention_are_both_said() -> None:
    report = attnscope.check(TwoFaults(), torch.randn(2, 7, 16))
    assert [one.code for one in report.findings] == ["AS211", "AS208"]


def test_pairs_are_counted_in_both_directions_where_nothing_is_masked() -> None:
    x = torch.randn(1, 6, 16)
    report = attnscope.check(nn.MultiheadAttention(16, 2, batch_first=True), x, x, x, causal=False)
    assert {one.name: one.result for one in report.tried}["past"] == "30 of 30 pairs connected"
    assert report.model is not None and report.model.weights == "weights as given"
    assert not report.notes


CROSS = """
from torch import nn

class CrossAttention(nn.Module):
    def __init__(self, d_model, d_ctx, num_heads):
        super().__init__()
        self.h = num_heads
        self.q = nn.Linear(d_model, d_model)
        self.kv = nn.Linear(d_ctx, 2 * d_model)

    def forward(self, x, context, mask):
        B, T, C = x.shape
        S = context.shape[1]
        q = self.q(x).view(B, T, self.h, -1).transpose(1, 2)
        k, v = self.kv(context).chunk(2, dim=-1)
        k = k.view(B, S, self.h, -1).transpose(1, 2)
        v = v.view(B, S, self.h, -1).transpose(1, 2)
        s = q @ k.mT / (C // self.h) ** 0.5
        s = s.masked_fill(~mask[:, None, :], float("-inf"))
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C)
"""


def test_a_mask_that_is_made_has_no_axis_too_many(tmp_path: Path, cli: Callable[..., Any]) -> None:
    (tmp_path / "cross.py").write_text(CROSS)
    done = cli("check", f"{tmp_path / 'cross.py'}:CrossAttention", "--format", "json")
    assert done.code == 0, done
    assert "mask: [B, 1, S] bool" in done.out
