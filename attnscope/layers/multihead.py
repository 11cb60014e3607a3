"""Multi-head causal attention: one projection each for queries, keys and values, split into heads.

Follows section 3.6.2 of Raschka, Build a Large Language Model (From Scratch), 2024: the same parameter
names, the same order of construction, the same mask. The mechanism is that of Vaswani et al., Attention Is
All You Need, 2017, section 3.2.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """x [B, T, d_in] -> [B, T, d_out]; T is at most `context_length`, `num_heads` divides `d_out`.

    `dropout` is the probability with which a weight is dropped in training. The buffer `mask`
    [context_length, context_length] is 1 above the diagonal, where a key lies in the query's future.
    Raises ValueError when the heads do not divide `d_out`.
    """

    mask: Tensor

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int,
        dropout: float = 0.0,
        num_heads: int = 2,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        if d_out % num_heads:
            raise ValueError(f"num_heads {num_heads} does not divide d_out {d_out}")
        self.d_out = d_out
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(context_length, context_length).triu(diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape

        # One product projects for all heads at once: head h owns channels h*D to (h+1)*D.
        queries = self.W_query(x)  # (B, T, C) -> (B, T, H*D)
        keys = self.W_key(x)  # (B, T, C) -> (B, T, H*D)
        values = self.W_value(x)  # (B, T, C) -> (B, T, H*D)

        # Splitting the last axis only renames the channels: nothing moves in memory.
        queries = queries.view(B, T, self.num_heads, self.head_dim)  # (B, T, H*D) -> (B, T, H, D)
        keys = keys.view(B, T, self.num_heads, self.head_dim)  # (B, T, H*D) -> (B, T, H, D)
        values = values.view(B, T, self.num_heads, self.head_dim)  # (B, T, H*D) -> (B, T, H, D)

        # `@` multiplies the last two axes and repeats over the others, so T and D must come last.
        queries = queries.transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)
        keys = keys.transpose(1, 2)  # (B, S, H, D) -> (B, H, S, D)
        values = values.transpose(1, 2)  # (B, S, H, D) -> (B, H, S, D)

        keys_t = keys.transpose(2, 3)  # (B, H, S, D) -> (B, H, D, S)
        scores = queries @ keys_t  # (B, H, T, D) @ (B, H, D, S) -> (B, H, T, S)
        # Products of longer vectors are larger; without the scale the softmax would saturate.
        scores = scores / self.head_dim**0.5

        blocked = self.mask[:T, :T].bool()  # (context, context) -> (T, S)
        scores = scores.masked_fill(blocked, float("-inf"))  # exp(-inf) = 0: no weight on the future
        weights = torch.softmax(scores, dim=-1)  # each query's weights over the keys sum to 1
        weights = self.dropout(weights)

        context = weights @ values  # (B, H, T, S) @ (B, H, S, D) -> (B, H, T, D)
        # Back to tokens first; `view` can merge H and D only where they lie next to each other in memory.
        context = context.transpose(1, 2)  # (B, H, T, D) -> (B, T, H, D)
        context = context.contiguous()
        context = context.view(B, T, self.d_out)  # (B, T, H, D) -> (B, T, H*D)
        output: Tensor = self.out_proj(context)  # (B, T, H*D) -> (B, T, H*D): mixes the heads
        return output
