"""The help of a finding says the truth of the case at hand, not of its usual cause."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnscope
from attnscope.diagnostic import Diagnostic
from tests.zoo.styles import causal, rows


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(24, 24) for _ in range(4))

    def heads(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x).view(*x.shape[:2], 3, 8).transpose(1, 2) for f in (self.q, self.k, self.v)]


class Folded(Base):
    def forward(self, x):
        q, k, v = (f(x).view(x.size(0) * 3, -1, 8) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT / 8**0.5).softmax(-1) @ v).view(x.shape))


class Merged(Base):
    def forward(self, x):
        q, k, v = self.heads(x)
        return self.o(((q @ k.mT / 8**0.5).softmax(-1) @ v).reshape(x.shape))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.MultiheadAttention(24, 3, batch_first=True)

    def forward(self, x):
        return self.a(x, x, x, attn_mask=causal(x), need_weights=False)[0]


class Flag(Base):
    def forward(self, x, past=None):
        q, k, v = self.heads(x)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(x.shape)), (k, v)


class QueriesOnly(Base):
    def forward(self, x):
        q, k, v = self.heads(x)
        angles = torch.arange(x.size(1), device=x.device)[:, None] * 1e4 ** (
            -torch.arange(4, device=x.device) / 4
        )
        a, b = q.chunk(2, -1)
        q = torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Narrow(Base):
    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.heads(x)
        merged = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.o(merged)


class Places(Base):
    def forward(self, x):
        q, k, v = self.heads(x)
        w = F.dropout((q @ k.mT / 8**0.5).softmax(-1), self.training, 0.25)  # type: ignore[arg-type]
        return self.o((w @ v).transpose(1, 2).flatten(2))


class OverBatch(Base):
    def forward(self, x):
        q, k, v = self.heads(x)
        return self.o(((q @ k.mT / 8**0.5).softmax(0) @ v).transpose(1, 2).flatten(2))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(24, 24)

    def forward(self, x):
        return F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1))


class FirstOnly(nn.Module):
    def __init__(self, turn: bool = False) -> None:
        super().__init__()
        self.turn = turn
        self.heads = nn.ModuleList(Head() for _ in range(3))

    def forward(self, x):
        return torch.cat([self.heads[i if self.turn else 0](x) for i in range(3)], -1)


class Pair(Base):
    def forward(self, x):
        q, k, v = self.heads(x)
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)), None


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = Pair()

    def forward(self, x):
        return x + self.a(x)


class Keys(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cfg = {"scale": 8**-0.5}

    def forward(self, x):
        q, k, v = self.heads(x)
        return self.o(((q @ k.mT * self.cfg.scale).softmax(-1) @ v).transpose(1, 2).flatten(2))  # type: ignore[attr-defined]


class AddsKeep(Base):
    def forward(self, x, attention_mask):
        q, k, v = self.heads(x)
        s = q @ k.mT / 8**0.5 + attention_mask[:, None, None, :]
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


def first(module: nn.Module, is_causal: bool = False) -> Diagnostic:
    x = rows()
    x = torch.randn(x.size(0), 7, 24)
    return attnscope.check(module.eval(), x, causal=is_causal).findings[0]


@pytest.mark.parametrize(
    ("module", "is_causal", "code", "part"),
    [
        (Folded, False, "AS211", ".view(b, t, heads, -1).transpose(1, 2).flatten(0, 1)"),
        (Merged, False, "AS211", ".transpose(1, 2).reshape(b, t, -1)"),
        (Blocks, True, "AS203", "MultiheadAttention blocks where a boolean mask is True"),
        (Flag, True, "AS218", "`is_causal=True` lines up the first query with the first key"),
        (QueriesOnly, True, "AS222", "rotate q and k both"),
        (Narrow, False, "AS112", "make `self.o` for 24 features: `nn.Linear(24, 24)`"),
        (Places, False, "AS136", "exchange `self.training` and `0.25`"),
        (FirstOnly, False, "AS216", "go over all entries: `for layer in self.heads`"),
        (Residual, False, "AS125", "take one element of it, `self.a(x)[0]`"),
        (Keys, False, "AS125", 'read the key: `self.cfg["scale"]`'),
        (OverBatch, False, "AS207", "use `dim=-1`"),
    ],
)
def test_help(module: type[nn.Module], is_causal: bool, code: str, part: str) -> None:
    finding = first(module(), is_causal)
    assert finding.code == code
    assert part in (finding.help or "")


class Cross(nn.Module):
    def __init__(self, read: bool) -> None:
        super().__init__()
        self.read = read
        self.a = nn.MultiheadAttention(24, 3, batch_first=True)

    def forward(self, x, memory):
        source = memory if self.read else x
        return x + self.a(x, source, source, need_weights=False)[0]


def test_a_memory_that_is_never_read() -> None:
    x, memory = torch.randn(2, 7, 24), torch.randn(2, 9, 24)
    (finding,) = attnscope.check(Cross(False), x, memory, causal=False).findings
    assert finding.code == "AS204" and finding.severity == "error"
    assert finding.message == ("the argument `memory` is never read: queries, keys and values come from `x`")
    assert not attnscope.check(Cross(True), x, memory, causal=False).findings


def test_a_list_whose_entries_all_run_is_sound() -> None:
    assert not attnscope.check(FirstOnly(True), torch.randn(2, 7, 24), causal=False).findings


def test_a_keep_mask_that_is_added() -> None:
    keep = torch.tensor([[1.0] * 4 + [0.0] * 3, [1.0] * 7])
    (finding,) = attnscope.check(
        AddsKeep(), torch.randn(2, 7, 24), attention_mask=keep, causal=False
    ).findings
    assert finding.code == "AS221"
    assert "an added mask needs 0 where keys may be seen" in (finding.help or "")
