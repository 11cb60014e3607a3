"""Attention as people write it, with an oracle for the weights of each: traces must show just these."""

# ruff: noqa: RUF059  (as people write it)

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.zoo.table import C, H, Zoo, rows

ZOO = Zoo(C, H, 10)


def heads(x, h):
    return x.unflatten(-1, (h, x.size(-1) // h)).movedim(-2, -3)


def plain(q, k, mask=None, scale=None):
    k = k.repeat_interleave(q.size(1) // k.size(1), dim=1)
    s = torch.einsum("bhid,bhjd->bhij", q, k) * (q.size(-1) ** -0.5 if scale is None else scale)
    if mask is None:
        mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return s.masked_fill(~mask, float("-inf")).softmax(-1)


def fused(m, x):
    q, k, _ = (heads(p, m.h) for p in m.qkv(x).chunk(3, dim=-1))
    return plain(q, k)


class Fused(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.h = h
        self.d = d
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d)
        self.register_buffer("mask", torch.tril(torch.ones(t, t)).view(1, 1, t, t))


@ZOO.row(oracle=fused)
class NanoGPT(Fused):
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(self.d, dim=2)
        k = k.view(B, T, self.h, C // self.h).transpose(1, 2)
        q = q.view(B, T, self.h, C // self.h).transpose(1, 2)
        v = v.view(B, T, self.h, C // self.h).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.proj(y)


@ZOO.row(oracle=fused)
class Comprehension(Fused):
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = [p.view(b, t, self.h, c // self.h).transpose(1, 2) for p in self.qkv(x).chunk(3, dim=-1)]
        scores = q @ k.mT / (c // self.h) ** 0.5
        scores = torch.where(self.mask[..., :t, :t].bool(), scores, float("-inf"))
        w = scores.softmax(dim=-1)
        return self.proj((w @ v).transpose(1, 2).reshape(b, t, c))


@ZOO.row(oracle=fused)
class Permuted(Fused):
    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q @ k.transpose(-2, -1)) * (C // self.h) ** -0.5
        attn += self.mask.log()[:, :, :N, :N]
        attn = attn.softmax(dim=-1)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


@ZOO.row(oracle=fused)
class Unbound(Fused):
    def forward(self, x):
        bsz, seq_len, _ = x.shape
        q, k, v = self.qkv(x).view(bsz, seq_len, 3, self.h, -1).permute(2, 0, 3, 1, 4).unbind(0)
        causal = torch.triu(torch.ones(seq_len, seq_len, dtype=torch.bool), diagonal=1)
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1])
        scores.masked_fill_(causal, -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        context = torch.matmul(weights, v).transpose(1, 2).flatten(2)
        return self.proj(context)


@ZOO.row(oracle=fused, found={"AS119": "error"})
class Folded(Fused):
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=2)
        hd = c // self.h
        q = q.reshape(b, t, self.h, hd).transpose(1, 2).reshape(b * self.h, t, hd)
        k = k.reshape(b, t, self.h, hd).transpose(1, 2).reshape(b * self.h, t, hd)
        v = v.reshape(b, t, self.h, hd).transpose(1, 2).reshape(b * self.h, t, hd)
        s = torch.bmm(q, k.transpose(1, 2)) * hd**-0.5
        s = s + torch.full((t, t), float("-inf")).triu(1)
        p = F.softmax(s, dim=-1)
        o = torch.bmm(p, v)
        o = o.view(b, self.h, t, hd).transpose(1, 2).reshape(b, t, c)
        return self.proj(o)


@ZOO.row(oracle=fused, found={"AS119": "error"})
class Einsum(Fused):
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.unflatten(-1, (self.h, -1))
        k = k.unflatten(-1, (self.h, -1))
        v = v.unflatten(-1, (self.h, -1))
        t = x.size(1)
        s = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.size(-1))
        s = s.masked_fill(~torch.ones(t, t, dtype=torch.bool).tril(), float("-inf"))
        a = s.softmax(-1)
        o = torch.einsum("bhij,bjhd->bihd", a, v)
        return self.proj(o.flatten(2))


@ZOO.row(oracle=fused)
class TokensFirst(Fused):
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.h, c // self.h) for p in self.qkv(x).split(c, dim=-1))
        s = torch.einsum("bthd,bshd->btsh", q, k) * (c // self.h) ** -0.5
        m = self.mask[0, 0, :t, :t, None] == 0
        a = torch.softmax(s.masked_fill(m, float("-inf")), dim=2)
        o = torch.einsum("btsh,bshd->bthd", a, v)
        return self.proj(o.reshape(b, t, c))


@ZOO.row(oracle=fused)
class ManualSoftmax(Fused):
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, c // self.h).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / (c // self.h) ** 0.5
        s = s.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        s = s - s.amax(dim=-1, keepdim=True)
        e = s.exp()
        a = e / e.sum(dim=-1, keepdim=True)
        return self.proj((a @ v).transpose(1, 2).flatten(2))


@ZOO.row(oracle=fused)
class SdpaCausal(Fused):
    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(self.d, dim=2)
        q = q.view(B, T, self.h, C // self.h).transpose(1, 2)
        k = k.view(B, T, self.h, C // self.h).transpose(1, 2)
        v = v.view(B, T, self.h, C // self.h).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


@ZOO.row(oracle=fused)
class SdpaMask(Fused):
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.h, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:, :, :t, :t].bool())
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


@ZOO.row(oracle=fused)
class FoldedBySplit(Fused):
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = torch.cat(q.split(c // self.h, dim=2), dim=0)
        k = torch.cat(k.split(c // self.h, dim=2), dim=0)
        v = torch.cat(v.split(c // self.h, dim=2), dim=0)
        s = torch.matmul(q, k.transpose(1, 2)) / (c // self.h) ** 0.5
        s = s.masked_fill(self.mask[0, :, :t, :t] == 0, float("-inf"))
        w = F.softmax(s, dim=-1)
        out = torch.cat(torch.matmul(w, v).chunk(self.h, dim=0), dim=2)
        return self.proj(out)


@ZOO.row(oracle=lambda m, x: plain(heads(m.W_query(x), m.num_heads), heads(m.W_key(x), m.num_heads)))
class Book(nn.Module):
    def __init__(self, d_in, num_heads, context_length, qkv_bias=False):
        super().__init__()
        self.d_out = d_in
        self.num_heads = num_heads
        self.head_dim = d_in // num_heads
        self.W_query = nn.Linear(d_in, d_in, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_in, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_in, bias=qkv_bias)
        self.out_proj = nn.Linear(d_in, d_in)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        b, num_tokens, d_in = x.shape
        keys = self.W_key(x)
        queries = self.W_query(x)
        values = self.W_value(x)
        keys = keys.view(b, num_tokens, self.num_heads, self.head_dim)
        values = values.view(b, num_tokens, self.num_heads, self.head_dim)
        queries = queries.view(b, num_tokens, self.num_heads, self.head_dim)
        keys = keys.transpose(1, 2)
        queries = queries.transpose(1, 2)
        values = values.transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        mask_bool = self.mask.bool()[:num_tokens, :num_tokens]
        attn_scores.masked_fill_(mask_bool, -torch.inf)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, num_tokens, self.d_out)
        return self.out_proj(context_vec)


@ZOO.row(oracle=lambda m, x: plain(m.query(x)[:, None], m.key(x)[:, None]))
class SingleHead(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.key = nn.Linear(d, d // h, bias=False)
        self.query = nn.Linear(d, d // h, bias=False)
        self.value = nn.Linear(d, d // h, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(t, t)))

    def forward(self, x):
        B, T, C = x.shape
        k = self.key(x)
        q = self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        v = self.value(x)
        return wei @ v


@ZOO.row(
    inputs=lambda b, t, d, h: (rows(t, b, d),),
    oracle=lambda m, x: plain(*(heads(f(x.transpose(0, 1)), m.num_heads) for f in (m.q_proj, m.k_proj))),
    found={"AS119": "error", "AS212": "error"},
)
class TokensBatchChannels(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.num_heads = h
        self.q_proj = nn.Linear(d, d)
        self.k_proj = nn.Linear(d, d)
        self.v_proj = nn.Linear(d, d)

    def forward(self, query):
        tgt_len, bsz, embed_dim = query.size()
        head_dim = embed_dim // self.num_heads
        q = self.q_proj(query) * head_dim**-0.5
        k = self.k_proj(query)
        v = self.v_proj(query)
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, head_dim).transpose(0, 1)
        k = k.contiguous().view(-1, bsz * self.num_heads, head_dim).transpose(0, 1)
        v = v.contiguous().view(-1, bsz * self.num_heads, head_dim).transpose(0, 1)
        w = torch.bmm(q, k.transpose(1, 2))
        w = w + torch.full((tgt_len, tgt_len), float("-inf")).triu(1).unsqueeze(0)
        w = F.softmax(w, dim=-1)
        y = torch.bmm(w, v)
        return y.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)


@ZOO.row(
    oracle=lambda m, x: plain(heads(m.wq(x), m.n_heads), heads(m.wk(x), m.n_kv_heads)),
    found={"AS119": "error"},
)
class Grouped(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.n_heads = h
        self.n_kv_heads = h // 2
        self.head_dim = d // h
        self.wq = nn.Linear(d, h * self.head_dim, bias=False)
        self.wk = nn.Linear(d, self.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(d, self.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(d, d, bias=False)

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        q = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim).transpose(1, 2)
        k = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim).transpose(1, 2)
        k = k.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)
        v = v.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)
        mask = torch.full((seqlen, seqlen), float("-inf")).triu(1)
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim) + mask
        scores = F.softmax(scores.float(), dim=-1).type_as(q)
        out = torch.matmul(scores, v)
        return self.wo(out.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


@ZOO.row(
    oracle=lambda m, x: plain(heads(m.q(x), m.n_head), heads(m.k(x), m.n_kv_heads)), found={"AS119": "error"}
)
class GroupedFiveAxes(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.n_head, self.n_kv_heads, self.head_dim = h, h // 2, d // h
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, self.n_kv_heads * self.head_dim)
        self.v = nn.Linear(d, self.n_kv_heads * self.head_dim)

    def forward(self, x):
        B, T, C = x.shape
        rep = self.n_head // self.n_kv_heads
        q = self.q(x).view(B, T, self.n_kv_heads, rep, self.head_dim).permute(0, 2, 3, 1, 4)
        k = self.k(x).view(B, T, self.n_kv_heads, 1, self.head_dim).permute(0, 2, 3, 1, 4)
        v = self.v(x).view(B, T, self.n_kv_heads, 1, self.head_dim).permute(0, 2, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        s = s.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
        a = s.softmax(-1)
        y = a @ v
        return y.permute(0, 3, 1, 2, 4).reshape(B, T, C)


def repeat_kv(x, n_rep):
    b, kv, t, hd = x.shape
    if n_rep == 1:
        return x
    return x[:, :, None, :, :].expand(b, kv, n_rep, t, hd).reshape(b, kv * n_rep, t, hd)


@ZOO.row(
    oracle=lambda m, x: plain(heads(m.q_proj(x), m.num_heads), heads(m.k_proj(x), m.num_key_value_heads)),
    found={"AS109": "error"},
)
class GroupedExpandSdpa(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.num_heads, self.num_key_value_heads, self.head_dim = h, h // 2, d // h
        self.q_proj = nn.Linear(d, d, bias=False)
        self.k_proj = nn.Linear(d, d // 2, bias=False)
        self.v_proj = nn.Linear(d, d // 2, bias=False)
        self.o_proj = nn.Linear(d, d, bias=False)

    def forward(self, hidden_states):
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        query_states = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        key_states = repeat_kv(key_states, self.num_heads // self.num_key_value_heads)
        value_states = repeat_kv(value_states, self.num_heads // self.num_key_value_heads)
        attn_output = F.scaled_dot_product_attention(query_states, key_states, value_states, is_causal=True)
        attn_output = attn_output.transpose(1, 2).reshape(*input_shape, -1).contiguous()
        return self.o_proj(attn_output)


@ZOO.row(
    oracle=lambda m, x: plain(
        heads(m.q(x), m.n_head), heads(m.kv(x).chunk(2, -1)[0], m.n_kv_head), scale=0.3
    ),
    found={"AS107": "error"},
)
class GqaFlag(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.n_head, self.n_kv_head, self.head_dim = h, h // 2, d // h
        self.q = nn.Linear(d, d)
        self.kv = nn.Linear(d, d)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q(x).view(B, T, self.n_head, self.head_dim).transpose(1, 2)
        k, v = self.kv(x).view(B, T, 2, self.n_kv_head, self.head_dim).unbind(2)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True, scale=0.3)
        return y.transpose(1, 2).reshape(B, T, C)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def rope_oracle(m, x):
    f = torch.outer(torch.arange(x.size(1)).float(), m.inv_freq)
    c, s = f.cos(), f.sin()

    def turn(p):
        a, b = heads(p, m.num_heads).chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1)

    return plain(turn(m.q(x)), turn(m.k(x)))


@ZOO.row(oracle=rope_oracle, found={"AS119": "error"})
class Rope(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.num_heads, self.head_dim = h, d // h
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        inv = 1.0 / 100 ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim)
        self.register_buffer("inv_freq", inv)

    def forward(self, x):
        B, T, _ = x.shape
        q = self.q(x).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k(x).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        v = self.v(x).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        freqs = torch.outer(torch.arange(T).float(), self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos(), emb.sin()
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        w = (q @ k.transpose(2, 3)) * self.head_dim**-0.5
        w = w.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
        return (w @ v).transpose(1, 2).reshape(B, T, -1)


def cached_oracle(m, x, past_k, past_v):
    q, k, _ = (heads(p, m.n_head) for p in m.c_attn(x).chunk(3, -1))
    t = x.size(1)
    return plain(q, torch.cat([past_k, k], 2), torch.ones(t, t + 3).tril(3).bool())


@ZOO.row(
    inputs=lambda b, t, d, h: (rows(b, t, d), *rows(2, b, h, 3, d // h)),
    oracle=cached_oracle,
    found={"AS119": "error"},
)
class Cached(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.n_head = h
        self.c_attn = nn.Linear(d, 3 * d)

    def forward(self, x, past_k, past_v):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = torch.cat([past_k, k], dim=2)
        v = torch.cat([past_v, v], dim=-2)
        S = k.size(2)
        att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        mask = torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)
        att = att.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        y = att @ v
        return y.transpose(1, 2).reshape(B, T, C)


def cross_oracle(m, x, context):
    q, k = heads(m.to_q(x), m.heads), heads(m.to_kv(context).chunk(2, -1)[0], m.heads)
    return plain(q, k, torch.ones(q.size(-2), k.size(-2)).bool())


@ZOO.row(inputs=lambda b, t, d, h: (rows(b, t, d), rows(b, t + 2, d)), oracle=cross_oracle)
class Cross(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.heads = h
        self.to_q = nn.Linear(d, d, bias=False)
        self.to_kv = nn.Linear(d, 2 * d, bias=False)

    def forward(self, x, context):
        b, n, _ = x.shape
        q = self.to_q(x)
        k, v = self.to_kv(context).chunk(2, dim=-1)
        q = q.view(b, n, self.heads, -1).transpose(1, 2)
        k = k.view(b, context.shape[1], self.heads, -1).transpose(1, 2)
        v = v.view(b, context.shape[1], self.heads, -1).transpose(1, 2)
        sim = torch.einsum("b h i d, b h j d -> b h i j", q, k) * q.shape[-1] ** -0.5
        attn = sim.softmax(dim=-1)
        out = torch.einsum("b h i j, b h j d -> b h i d", attn, v)
        return out.transpose(1, 2).reshape(b, n, -1)


def softcap_alibi_oracle(m, x):
    q, k, v = (heads(p, m.h) for p in m.qkv(x).chunk(3, dim=-1))
    t = x.size(1)
    s = 5 * torch.tanh(q @ k.mT / math.sqrt(q.size(-1)) / 5)
    away = (torch.arange(t)[:, None] - torch.arange(t)).abs()
    s = s - m.slopes[:, None, None] * away
    return s.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf")).softmax(-1)


@ZOO.row(oracle=softcap_alibi_oracle, found={"AS119": "error"})
class SoftcapAlibi(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, h + 1))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, self.h, C // self.h).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        att = q @ k.transpose(-2, -1) / math.sqrt(C // self.h)
        att = 5.0 * torch.tanh(att / 5.0)
        pos = torch.arange(T)
        bias = -(pos[:, None] - pos[None, :]).abs()
        att = att + self.slopes.view(1, self.h, 1, 1) * bias
        att = att.masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
        return (att.softmax(-1) @ v).transpose(1, 2).flatten(2)


@ZOO.row(
    inputs=lambda b, t, d, h: (rows(t, d),),
    oracle=lambda m, x: plain(
        (x @ m.W_q)[None, None], (x @ m.W_k)[None, None], torch.ones(len(x), len(x)).bool()
    ),
    found={"AS201": "note"},
)
class NoBatch(nn.Module):
    def __init__(self, d, h, t):
        super().__init__()
        self.W_q = nn.Parameter(torch.rand(d, d // h))
        self.W_k = nn.Parameter(torch.rand(d, d // h))
        self.W_v = nn.Parameter(torch.rand(d, d // h))

    def forward(self, x):
        keys = x @ self.W_k
        queries = x @ self.W_q
        values = x @ self.W_v
        attn_scores = queries @ keys.T
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        return attn_weights @ values


class Head(nn.Module):
    def __init__(self, n_embd, head_size):
        super().__init__()
        self.q = nn.Linear(n_embd, head_size, bias=False)
        self.k = nn.Linear(n_embd, head_size, bias=False)
        self.v = nn.Linear(n_embd, head_size, bias=False)

    def forward(self, x):
        T = x.shape[1]
        q, k, v = self.q(x), self.k(x), self.v(x)
        w = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
        w = w.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
        return F.softmax(w, dim=-1) @ v


@ZOO.row(
    oracle=lambda m, x: plain(
        torch.stack([h.q(x) for h in m.heads], 1), torch.stack([h.k(x) for h in m.heads], 1)
    ),
    found={"AS119": "error"},
)
class LoopOverHeads(nn.Module):
    def __init__(self, n_embd, n_head, t):
        super().__init__()
        self.heads = nn.ModuleList([Head(n_embd, n_embd // n_head) for _ in range(n_head)])
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        out = torch.cat([h(x) for h in self.heads], dim=-1)
        return self.proj(out)
