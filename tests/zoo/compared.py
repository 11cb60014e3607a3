"""One attention, written in the styles in which people write it, and with faults that people make."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.table import C, H, T, Zoo, rows

ZOO = Zoo(C, H)


class Conv1D(nn.Module):
    """A linear layer that keeps its weight as [in, out]."""

    def __init__(self, out: int, into: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(into, out) * 0.1)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


@ZOO.row()
class Separate(nn.Module):
    """Explicit softmax, one linear layer each for q, k and v."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim) for _ in range(3))
        self.o_proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            p(x).view(b, t, self.heads, d // self.heads).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        blocked = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(b, t, d))


@ZOO.row()
class Renamed(nn.Module):
    """As `Separate` with other names, `reshape` for `view`, einsum for `@`, a mask that is added."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.nh = heads
        self.W_query, self.W_key, self.W_value = (nn.Linear(dim, dim) for _ in range(3))
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, inputs: Tensor) -> Tensor:
        n, length, width = inputs.shape
        size = width // self.nh
        one = self.W_query(inputs).reshape(n, length, self.nh, size)
        two = self.W_key(inputs).reshape(n, length, self.nh, size)
        three = self.W_value(inputs).reshape(n, length, self.nh, size)
        att = torch.einsum("bthd,bshd->bhts", one * size**-0.5, two)
        att = att + torch.full_like(att[0, 0], torch.finfo(att.dtype).min).triu(1)
        mixed = torch.einsum("bhts,bshd->bthd", att.softmax(dim=-1), three)
        return self.out_proj(mixed.reshape(n, length, width))


@ZOO.row()
class Fused(nn.Module):
    """SDPA over one fused projection, rows q | k | v."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def cut(self, x: Tensor) -> tuple[Tensor, ...]:
        b, t, d = x.shape
        parts = self.qkv(x).split(d, dim=-1)
        return tuple(p.view(b, t, self.heads, -1).transpose(1, 2) for p in parts)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.cut(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(x.shape))


@ZOO.row()
class PerHead(nn.Module):
    """As `Fused`, but the rows are q | k | v of each head in turn."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.dense = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.query_key_value(x).view(b, t, self.heads, -1).transpose(1, 2).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dense(y.transpose(1, 2).reshape(x.shape))


@ZOO.row()
class Transposed(nn.Module):
    """As `Fused` with weights kept as [in, out] and a mask buffer called `bias`."""

    def __init__(self, dim: int, heads: int, context: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(3 * dim, dim), Conv1D(dim, dim)
        self.register_buffer("bias", torch.ones(1, 1, context, context).tril())

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.c_attn(x).chunk(3, -1))
        scores = q @ k.mT / q.size(-1) ** 0.5
        weights = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(b, t, d))


@ZOO.row()
class Raw(nn.Module):
    """Bare square matrices, multiplied from the right: [in, out], which no shape tells."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.Parameter(torch.randn(dim, dim) / dim**0.5) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = ((x @ w).view(b, t, self.heads, -1).transpose(1, 2) for w in (self.W_q, self.W_k, self.W_v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(x.shape) @ self.W_o


@ZOO.row()
class EachHead(nn.Module):
    """One matrix for each head in one tensor: [H, C, D], and [H, D, C] for the output."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        size = dim // heads
        self.heads = heads
        self.w_q, self.w_k, self.w_v = (nn.Parameter(torch.randn(heads, dim, size) / 4) for _ in range(3))
        self.w_o = nn.Parameter(torch.randn(heads, size, dim) / 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("btc,hcd->bhtd", x, w) for w in (self.w_q, self.w_k, self.w_v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.einsum("bhtd,hdc->btc", y, self.w_o)


@ZOO.row()
class Head(nn.Module):
    """One head with a fused projection of its own."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, size, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), is_causal=True)


@ZOO.row()
class ManyHeads(nn.Module):
    """Heads side by side, then a projection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(dim, dim // heads) for _ in range(heads))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


@ZOO.row()
class Cloned(nn.Module):
    """Four equal layers in a list: query, key, value, output."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.h = heads
        self.linears = nn.ModuleList(nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (m(x).view(b, t, self.h, -1).transpose(1, 2) for m in self.linears[:3])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linears[-1](y.transpose(1, 2).reshape(b, t, d))


class Grouped(nn.Module):
    """Fewer key/value heads than query heads."""

    def __init__(self, dim: int, heads: int, kv_heads: int = 2) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk, self.wv = (nn.Linear(dim, kv_heads * self.size, bias=False) for _ in range(2))
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.heads, self.size).transpose(1, 2)
        k, v = (w(x).view(b, t, self.kv_heads, self.size).transpose(1, 2) for w in (self.wk, self.wv))
        k, v = (u.repeat_interleave(self.heads // self.kv_heads, dim=1) for u in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(x.shape))


@ZOO.row(rows(), torch.ones(T, T).tril().bool(), found={"AS203": "error"})
class TakesMask(nn.Module):
    """The caller's mask, True = blocked."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        scores = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class TimeFirst(nn.Module):
    """[T, B, C], inside PyTorch's own attention."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads)

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[0]
        blocked = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        return self.attn(x, x, x, attn_mask=blocked, need_weights=False)[0]


@ZOO.row()
class Odd(nn.Module):
    """Names that tell nothing, in an order that misleads: value, output, key, query."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.alpha, self.beta, self.gamma, self.delta = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            m(x).view(b, t, self.heads, -1).transpose(1, 2) for m in (self.delta, self.gamma, self.alpha)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.beta(y.transpose(1, 2).reshape(b, t, d))


# -- faults: each differs from `Fused` in one thing


@ZOO.row(found={"AS208": "note"})
class NoScale(Fused):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.cut(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
        return self.proj(y.transpose(1, 2).reshape(x.shape))


@ZOO.row(found={"AS201": "error"})
class OneAhead(Fused):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.cut(x)
        t = x.shape[1]
        seen = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.proj(y.transpose(1, 2).reshape(x.shape))


@ZOO.row(found={"AS211": "error"})
class MixedHeads(Fused):
    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (p.reshape(b, self.heads, t, -1) for p in self.qkv(x).split(d, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(x.shape))


@ZOO.row()
class SameRowsOtherOrder(Fused):
    """The same names and shapes, but the fused rows are read per head."""

    def cut(self, x: Tensor) -> tuple[Tensor, ...]:
        b, t, _ = x.shape
        return self.qkv(x).view(b, t, self.heads, -1).transpose(1, 2).chunk(3, dim=-1)


@ZOO.row(found={"AS214": "error"})
class DropsInEval(Fused):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(super().forward(x), 0.2)


@ZOO.row(found={"AS101": "error"})
class Raises(Fused):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.missing


@ZOO.row(found={"AS216": "error"})
class Detached(Fused):
    """The same outputs; no gradient reaches the projection."""

    def cut(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().cut(x)
        return q.detach(), k.detach(), v


@ZOO.row(found={"AS217": "error"})
class Unregistered(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = [Head(dim, dim // heads) for _ in range(heads)]
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


@ZOO.row()
class MaskBuffer(Fused):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.register_buffer("seen", torch.ones(16, 16, dtype=torch.bool).tril(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.cut(x)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.seen[: x.shape[1], : x.shape[1]])
        return self.proj(y.transpose(1, 2).reshape(x.shape))


@ZOO.row(found={"AS119": "error"})
class MaskAttribute(MaskBuffer):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        mask = self._buffers.pop("seen")
        self.seen = mask


@ZOO.row()
class Cached(Fused):
    """Keys and values of earlier calls are put in front."""

    shift = 0

    def forward(self, x: Tensor, past: Any = None) -> Any:
        q, k, v = self.cut(x)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        t, s = q.shape[2], k.shape[2]
        seen = torch.ones(t, s, dtype=torch.bool, device=x.device).tril(s - t if not self.shift else 0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.proj(y.transpose(1, 2).reshape(x.shape)), (k, v)


@ZOO.row(found={"AS218": "error"})
class CachedWrong(Cached):
    """The mask forgets the tokens before."""

    shift = 1


class Loads(Fused):
    def load_conv1d(self, state: dict[str, Tensor]) -> None:
        self.load_state_dict({k: v.T if v.dim() == 2 else v for k, v in state.items()})


class LoadsAsIs(Fused):
    def load_conv1d(self, state: dict[str, Tensor]) -> None:
        self.load_state_dict(state)
