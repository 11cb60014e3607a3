"""Correct attention in many styles: on none of them may a check report an error or a warning."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.table import B, C, D, H, Row, T, Zoo, rows

ZOO = Zoo()


def heads(x: Tensor, count: int = H) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def merged(y: Tensor) -> Tensor:
    return y.transpose(1, 2).flatten(2)


def causal(x: Tensor) -> Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()


def keep() -> Tensor:
    """Which tokens are real: the first entry has four."""
    return torch.tensor([[1] * 4 + [0] * 3, [1] * 7]).bool()


class Projections(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(C, C) for _ in range(4))

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return heads(self.q(x)), heads(self.k(x)), heads(self.v(x))


@ZOO.row()
class FusedBuffer(nn.Module):
    def __init__(self, n_embd: int = C, n_head: int = H, block: int = 12) -> None:
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.c_proj(y)


@ZOO.row()
class Flash(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return self.o(merged(y))


@ZOO.row()
class EinsumBHQK(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads = H
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(C, C, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (self.num_heads, -1)) for w in (self.wq, self.wk, self.wv))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~causal(x), float("-inf"))
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), v)
        return self.wo(y.flatten(2))


@ZOO.row()
class EinsumWeights(nn.Module):
    """Projections as bare parameters [C, H, D]."""

    def __init__(self):
        super().__init__()
        self.w = nn.ParameterList([nn.Parameter(torch.randn(C, H, D) / C**0.5) for _ in range(3)])
        self.out = nn.Parameter(torch.randn(H, D, C) / C**0.5)

    def forward(self, x):
        q, k, v = (torch.einsum("btc,chd->bhtd", x, w) for w in self.w)
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) * D**-0.5
        scores = torch.where(causal(x), scores, torch.tensor(float("-inf"), dtype=x.dtype, device=x.device))
        return torch.einsum("bhts,bhsd,hdc->btc", scores.softmax(-1), v, self.out)


@ZOO.row()
class Head(nn.Module):
    def __init__(self, size=D, context=12):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(C, size, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(context, context)))

    def forward(self, x):
        t = x.shape[1]
        wei = self.query(x) @ self.key(x).transpose(-2, -1) * self.key.out_features**-0.5
        wei = wei.masked_fill(self.tril[:t, :t] == 0, float("-inf")).softmax(-1)
        return wei @ self.value(x)


@ZOO.row()
class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads = H
        self.heads = nn.ModuleList([Head() for _ in range(self.num_heads)])
        self.proj = nn.Linear(C, C)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


@ZOO.row()
class FoldedBmm(Projections):
    def fold(self, x):
        b, t, _ = x.shape
        return x.view(b, t, H, D).permute(0, 2, 1, 3).reshape(b * H, t, D)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.fold(self.q(x)), self.fold(self.k(x)), self.fold(self.v(x))
        empty = torch.empty(b * H, t, t, dtype=q.dtype, device=q.device)
        scores = torch.baddbmm(empty, q, k.transpose(1, 2), beta=0, alpha=D**-0.5)
        scores = scores + torch.full((t, t), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        y = torch.bmm(F.softmax(scores, dim=-1), v).view(b, H, t, D)
        return self.o(y.permute(0, 2, 1, 3).reshape(b, t, c))


@ZOO.row()
class GroupedInterleave(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_heads, self.n_kv_heads = 4, 2
        self.wq, self.wk, self.wv = nn.Linear(C, C), nn.Linear(C, C // 2), nn.Linear(C, C // 2)

    def forward(self, x):
        q = heads(self.wq(x), self.n_heads)
        k, v = (heads(w(x), self.n_kv_heads).repeat_interleave(2, dim=1) for w in (self.wk, self.wv))
        return merged(F.scaled_dot_product_attention(q, k, v, is_causal=True))


@ZOO.row()
class GroupedExpand(GroupedInterleave):
    def widen(self, u):
        b, g, t, d = u.shape
        return u[:, :, None].expand(b, g, self.n_heads // g, t, d).reshape(b, self.n_heads, t, d)

    def forward(self, x):
        q = heads(self.wq(x), self.n_heads)
        k, v = (self.widen(heads(w(x), self.n_kv_heads)) for w in (self.wk, self.wv))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        return merged(scores.masked_fill(~causal(x), -torch.inf).softmax(-1) @ v)


@ZOO.row()
class GroupedFlag(GroupedInterleave):
    def forward(self, x):
        q, k, v = heads(self.wq(x), 4), heads(self.wk(x), 2), heads(self.wv(x), 2)
        return merged(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))


@ZOO.row()
class MultiQuery(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(C, C), nn.Linear(C, 2 * D), nn.Linear(C, C)

    def forward(self, x):
        q = heads(self.q(x))
        k, v = self.kv(x)[:, None].chunk(2, dim=-1)
        scores = (q * D**-0.5) @ k.transpose(-1, -2)
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class Alibi(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        t = x.shape[1]
        place = torch.arange(t, device=x.device)
        slopes = 2.0 ** (-8.0 * torch.arange(1, H + 1, device=x.device) / H)
        bias = (place[None, :] - place[:, None]).to(x.dtype) * slopes[:, None, None].to(x.dtype)
        bias = bias.masked_fill(~causal(x), float("-inf"))
        return self.o(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=bias)))


@ZOO.row()
class SlidingWindow(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        seen = causal(x) & ~causal(x).tril(-3)
        return self.o(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen)))


@ZOO.row()
class PrefixLM(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        seen = causal(x).clone()
        seen[:, :3] = True
        scores = q @ k.mT * D**-0.5
        return self.o(merged(scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v))


@ZOO.row()
class Softcapped(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scores = q @ k.mT / D**0.5
        scores = 30.0 * torch.tanh(scores / 30.0)
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class NormedQK(Projections):
    def __init__(self):
        super().__init__()
        self.qn, self.kn = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x):
        q, k, v = self.split(x)
        scores = 10.0 * self.qn(q) @ self.kn(k).mT
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class HandNormedQK(Projections):
    def norm(self, u):
        return u * torch.rsqrt(u.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, x):
        q, k, v = self.split(x)
        scores = self.norm(q) @ self.norm(k).mT
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class Cosine(Projections):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((H, 1, 1), 2.3))

    def forward(self, x):
        q, k, v = self.split(x)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.log_scale.exp()
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class LearnedTemperature(Projections):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        q, k, v = self.split(x)
        scores = q @ k.mT / self.temperature
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class FixedTemperature(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scores = q @ k.mT / (2.5 * math.sqrt(D))
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class FourthRoot(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scale = D**-0.25
        scores = (q * scale) @ (k * scale).transpose(-2, -1)
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class MuP(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        return self.o(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0 / D)))


@ZOO.row()
class Sinks(Projections):
    """A learned logit beside the scores of each row, dropped after the softmax."""

    def __init__(self):
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(H))

    def forward(self, x):
        q, k, v = self.split(x)
        scores = (q @ k.mT / D**0.5).masked_fill(~causal(x), float("-inf"))
        sink = self.sink.view(1, H, 1, 1).expand(*scores.shape[:3], 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
        return self.o(merged(weights @ v))


@ZOO.row()
class Float32Softmax(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scores = (q @ k.mT).float() / D**0.5
        scores = scores.masked_fill(~causal(x), torch.finfo(scores.dtype).min)
        return self.o(merged(F.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype) @ v))


@ZOO.row(rows(T, B, C), layout="tbc")
class SeqFirst(nn.Module):
    """[T, B, C] throughout, as its own unpacking says."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H)

    def forward(self, x):
        tgt_len, _bsz, _ = x.shape
        mask = torch.triu(torch.ones(tgt_len, tgt_len, dtype=torch.bool, device=x.device), 1)
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


@ZOO.row()
class BatchFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H, dropout=0.1, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
        return self.attention(x, x, x, attn_mask=mask, is_causal=True)[0]


@ZOO.row(causal=False)
@ZOO.row(name="EncoderUnsaid", found={"AS201": "note"})
class Encoder(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        return self.o(merged((q @ k.transpose(-2, -1) / D**0.5).softmax(dim=-1) @ v))


@ZOO.row(rows(), ~keep(), name="EncoderLayerPadded", causal=False)
@ZOO.row(causal=False)
class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(C, H, 2 * C, batch_first=True)

    def forward(self, x, pad=None):
        return self.layer(x, src_key_padding_mask=pad)


@ZOO.row(rows(), keep(), causal=False)
class PaddedEncoder(Projections):
    def forward(self, x, keep):
        q, k, v = self.split(x)
        scores = (q @ k.mT / D**0.5).masked_fill(~keep[:, None, None, :], torch.finfo(x.dtype).min)
        return self.o(merged(scores.softmax(-1) @ v))


@ZOO.row(rows(), keep().long())
class PaddedCausal(Projections):
    def forward(self, x, attention_mask):
        q, k, v = self.split(x)
        seen = causal(x) & attention_mask[:, None, None, :].bool()
        scores = (q @ k.mT / D**0.5).masked_fill(~seen, -1e9)
        return self.o(merged(scores.softmax(-1) @ v)) * attention_mask[..., None]


@ZOO.row(rows(), torch.zeros(T, T).masked_fill(~causal(rows()), float("-inf")))
class AdditiveMask(Projections):
    def forward(self, x, mask):
        q, k, v = self.split(x)
        return self.o(merged((q @ k.mT / D**0.5 + mask).softmax(-1) @ v))


@ZOO.row(kwargs={"mask": causal(rows())})
@ZOO.row(name="OptionalMaskUnsaid", found={"AS201": "note"})
class OptionalMask(Projections):
    def forward(self, x, mask=None):
        q, k, v = self.split(x)
        scores = q @ k.mT / D**0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        return self.o(merged(scores.softmax(-1) @ v))


@ZOO.row(rows(), rows(B, 5, C), causal=False)
@ZOO.row(rows(), rows(B, 5, C), name="CrossUnsaid")
class Cross(Projections):
    def forward(self, x, memory):
        q, k, v = heads(self.q(x)), heads(self.k(memory)), heads(self.v(memory))
        return self.o(merged(F.scaled_dot_product_attention(q, k, v)))


def turn(u: Tensor, start: int = 0) -> Tensor:
    half = u.shape[-1] // 2
    place = torch.arange(start, start + u.shape[-2], device=u.device, dtype=u.dtype)
    angle = place[:, None] * 100.0 ** (-torch.arange(half, device=u.device, dtype=u.dtype) / half)
    a, b = u[..., :half], u[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


@ZOO.row()
class RotaryHalf(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        q, k = turn(q), turn(k)
        scores = q @ k.mT * D**-0.5
        return self.o(merged(scores.masked_fill(~causal(x), float("-inf")).softmax(-1) @ v))


@ZOO.row()
class RotaryComplex(Projections):
    def __init__(self):
        super().__init__()
        angle = torch.outer(torch.arange(16.0), 100.0 ** (-torch.arange(0, D, 2) / D))
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angle), angle), persistent=False)

    def rotate(self, u):
        pairs = torch.view_as_complex(u.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * self.freqs_cis[: u.shape[1], None]).flatten(-2).to(u.dtype)

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (H, D)) for w in (self.q, self.k, self.v))
        q, k = self.rotate(q), self.rotate(k)
        q, k, v = (u.transpose(1, 2) for u in (q, k, v))
        return self.o(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


@ZOO.row()
class RotaryPartial(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        q, k = (torch.cat([turn(u[..., :4]), u[..., 4:]], -1) for u in (q, k))
        return self.o(merged(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


@ZOO.row()
class CachedRotary(Projections):
    def forward(self, x, past=None):
        q, k, v = self.split(x)
        start = 0 if past is None else past[0].shape[2]
        q, k = turn(q, start), turn(k, start)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        t, total = x.shape[1], k.shape[2]
        seen = torch.ones(t, total, dtype=torch.bool, device=x.device).tril(total - t)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.o(merged(y)), (k, v)


@ZOO.row()
class CachedSingle(Projections):
    """`is_causal` for a prompt, nothing for single new tokens."""

    def forward(self, x, layer_past=None, use_cache=False):
        q, k, v = self.split(x)
        if layer_past is not None:
            k, v = torch.cat([layer_past[0], k], 2), torch.cat([layer_past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        out = self.o(merged(y))
        return (out, (k, v)) if use_cache else (out, None)


@ZOO.row()
class CachedInside(Projections):
    """Keys and values are kept in buffers, written at `start_pos`."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache_k", torch.zeros(4, H, 16, D), persistent=False)
        self.register_buffer("cache_v", torch.zeros(4, H, 16, D), persistent=False)

    def forward(self, x, start_pos: int = 0):
        b, t, _ = x.shape
        q, k, v = self.split(x)
        self.cache_k[:b, :, start_pos : start_pos + t] = k.detach()
        self.cache_v[:b, :, start_pos : start_pos + t] = v.detach()
        past_k, past_v = self.cache_k[:b, :, :start_pos], self.cache_v[:b, :, :start_pos]
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        seen = torch.ones(t, start_pos + t, dtype=torch.bool, device=x.device).tril(start_pos)
        return self.o(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen)))


class Conv1D(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inside, outside) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outside))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


@ZOO.row()
class ConvGPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(C, 3 * C), Conv1D(C, C)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16, dtype=torch.bool)), persistent=False)

    def forward(self, x):
        t = x.shape[1]
        q, k, v = (heads(u) for u in self.c_attn(x).split(C, dim=-1))
        scores = torch.matmul(q, k.transpose(-1, -2)) / v.size(-1) ** 0.5
        low = torch.full([], torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device)
        scores = torch.where(self.mask[:t, :t], scores, low)
        return self.c_proj(merged(scores.softmax(-1) @ v))


@ZOO.row()
class Block(nn.Module):
    """Pre-norm residual block whose last layers begin at zero."""

    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(C), nn.LayerNorm(C), FusedBuffer()
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(0.1))
        for layer in (self.attention.c_proj, self.mlp[2]):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


@ZOO.row(torch.randint(31, (B, T), generator=torch.Generator().manual_seed(1)))
class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(31, C), nn.Embedding(16, C)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, 31, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


@ZOO.row()
class T5Attention(Projections):
    """No scale; a learned bias for each distance."""

    def __init__(self):
        super().__init__()
        self.relative = nn.Embedding(32, H)

    def forward(self, x):
        q, k, v = self.split(x)
        place = torch.arange(x.shape[1], device=x.device)
        bias = self.relative((place[:, None] - place[None, :]).clamp(0, 31)).permute(2, 0, 1)
        scores = (q @ k.mT + bias).masked_fill(~causal(x), float("-inf"))
        return self.o(merged(scores.softmax(-1) @ v))


@ZOO.row()
class RelativeShift(Projections):
    """Positions as a second product, shifted into place by a view, as in Transformer-XL."""

    def __init__(self):
        super().__init__()
        self.r = nn.Linear(C, C, bias=False)
        self.u, self.w = nn.Parameter(torch.randn(H, 1, D) * 0.1), nn.Parameter(torch.randn(H, 1, D) * 0.1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.split(x)
        place = torch.arange(t - 1, -1, -1, device=x.device, dtype=x.dtype)
        wave = place[:, None] * 10.0 ** (-torch.arange(c // 2, device=x.device, dtype=x.dtype) / c)
        r = self.r(torch.cat([wave.sin(), wave.cos()], -1)).view(t, H, D).transpose(0, 1)
        content = (q + self.u) @ k.mT
        position = (q + self.w) @ r.mT
        shifted = torch.cat([position.new_zeros(b, H, t, 1), position], -1).view(b, H, t + 1, t)[:, :, 1:]
        scores = ((content + shifted.reshape(b, H, t, t)) / D**0.5).masked_fill(~causal(x), float("-inf"))
        return self.o(merged(scores.softmax(-1) @ v))


@ZOO.row()
class Differential(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(C, 2 * C), nn.Linear(C, 2 * C), nn.Linear(C, C)
        self.lam = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        q, k, v = heads(self.q(x), 2 * H), heads(self.k(x), 2 * H), heads(self.v(x))
        weights = (q @ k.mT / D**0.5).masked_fill(~causal(x), float("-inf")).softmax(-1)
        weights = weights.unflatten(1, (H, 2))
        return merged((weights[:, :, 0] - self.lam * weights[:, :, 1]) @ v)


@ZOO.row()
class TalkingHeads(Projections):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(H, H, bias=False), nn.Linear(H, H, bias=False)

    def forward(self, x):
        q, k, v = self.split(x)
        scores = self.before((q @ k.mT / D**0.5).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        weights = scores.masked_fill(~causal(x), float("-inf")).softmax(-1)
        weights = self.after(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.o(merged(weights @ v))


@ZOO.row()
class GatedOutput(Projections):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(C, C)

    def forward(self, x):
        q, k, v = self.split(x)
        y = merged(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return self.o(y * torch.sigmoid(self.gate(x)))


@ZOO.row()
class LinearAttention(Projections):
    """No softmax at all: a running sum of outer products."""

    def forward(self, x):
        q, k, v = self.split(x)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = (k[..., :, None] * v[..., None, :]).cumsum(2)
        total = k.cumsum(2)
        y = (q[..., None, :] @ state).squeeze(-2) / (q * total).sum(-1, keepdim=True)
        return self.o(merged(y))


@ZOO.row()
class BlockLocal(Projections):
    """Tokens see earlier ones of their own block of 3."""

    def forward(self, x):
        q, k, v = self.split(x)
        block = torch.arange(x.shape[1], device=x.device) // 3
        seen = causal(x) & (block[:, None] == block[None, :])
        return self.o(merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen)))


@ZOO.row()
class TransposedProducts(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scores = (k @ q.transpose(-2, -1)).transpose(-2, -1) / D**0.5
        weights = scores.masked_fill(~causal(x), float("-inf")).softmax(-1)
        return self.o(merged((v.transpose(-2, -1) @ weights.transpose(-2, -1)).transpose(-2, -1)))


@ZOO.row(rows(), keep().flip(1))
class EmptyRows(Projections):
    """Rows without a key are made zero on purpose."""

    def forward(self, x, valid):
        q, k, v = self.split(x)
        seen = causal(x) & valid[:, None, None, :]
        weights = (q @ k.mT / D**0.5).masked_fill(~seen, float("-inf")).softmax(-1).nan_to_num(0.0)
        return self.o(merged(weights @ v))


@ZOO.row()
class Renormalised(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        weights = (q @ k.mT / D**0.5).softmax(-1) * causal(x)
        weights = weights / weights.sum(-1, keepdim=True)
        return self.o(merged(weights @ v))


@ZOO.row()
class Latent(nn.Module):
    """Keys and values from a small latent; content and rotary scores are summed, one scale for both."""

    def __init__(self):
        super().__init__()
        self.q, self.down = nn.Linear(C, H * (D + 4)), nn.Linear(C, 10 + 4)
        self.up, self.o = nn.Linear(10, 2 * C), nn.Linear(C, C)

    def forward(self, x):
        q = heads(self.q(x))
        latent, rotary = self.down(x).split([10, 4], -1)
        k, v = (heads(u) for u in self.up(latent).chunk(2, -1))
        scores = q[..., :D] @ k.mT + turn(q[..., D:]) @ turn(rotary[:, None]).mT
        scores = (scores * (D + 4) ** -0.5).masked_fill(~causal(x), float("-inf"))
        return self.o(merged(scores.softmax(-1) @ v))


@ZOO.row(rows(B, 8, C), causal=False)
class Windows(Projections):
    """Non-overlapping windows of 4 tokens, folded into the batch."""

    def forward(self, x):
        b, t, c = x.shape
        w = x.view(b * (t // 4), 4, c)
        q, k, v = self.split(w)
        return self.o(merged((q @ k.mT / D**0.5).softmax(-1) @ v)).view(b, t, c)


@ZOO.row(*(rows(),) * 3, kwargs={"mask": causal(rows())})
class QueryKeyValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(C, C) for _ in range(4)])

    def forward(self, query, key, value, mask=None):
        q, k, v = (heads(layer(u)) for layer, u in zip(self.linears, (query, key, value), strict=False))
        scores = q @ k.transpose(-2, -1) / math.sqrt(D)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.linears[-1](merged(scores.softmax(dim=-1) @ v))


@ZOO.row()
class ScoresMinusMax(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scores = (q @ k.mT / D**0.5).masked_fill(~causal(x), float("-inf"))
        scores = scores - scores.amax(-1, keepdim=True)
        return self.o(merged(scores.softmax(-1) @ v))


@ZOO.row()
class HandSoftmax(Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scores = (q @ k.mT / D**0.5).masked_fill(~causal(x), float("-inf"))
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return self.o(merged(weights / weights.sum(-1, keepdim=True) @ v))


@ZOO.row(causal=False)
class Bucketed(nn.Module):
    """Swin's table of biases, in an encoder."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.scale = D**-0.5
        self.table = nn.Parameter(torch.zeros(2 * T - 1, H))
        place = torch.arange(T)
        self.register_buffer("index", place[:, None] - place[None, :] + T - 1, persistent=False)

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, H, c // H).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn + self.table[self.index.view(-1)].view(n, n, H).permute(2, 0, 1)
        return self.proj((attn.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


@ZOO.row(causal=False)
class ChannelAttention(nn.Module):
    """Attention among channels: the softmax is over channels by design."""

    def __init__(self):
        super().__init__()
        self.qkv, self.temperature = nn.Linear(C, 3 * C), nn.Parameter(torch.ones(H, 1, 1))

    def forward(self, x):
        q, k, v = (heads(u).transpose(-2, -1) for u in self.qkv(x).chunk(3, -1))
        weights = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.temperature).softmax(-1)
        return merged((weights @ v).transpose(-2, -1))


ZOO["MultiheadAttention"] = Row(
    lambda: nn.MultiheadAttention(C, H), (rows(T, B, C),) * 3, said={"causal": False}
)
ZOO["TransformerDecoderLayer"] = Row(
    lambda: nn.TransformerDecoderLayer(C, H, 2 * C, batch_first=True),
    (rows(), rows(B, 5, C)),
    {"tgt_mask": ~causal(rows())},
)
