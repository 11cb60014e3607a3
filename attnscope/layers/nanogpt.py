"""Multi-head causal attention with one fused projection for queries, keys and values.

Follows `CausalSelfAttention` in Karpathy's nanoGPT (https://github.com/karpathy/nanoGPT/blob/master/model.py):
the same parameter names and order of construction. The buffer is called `mask` here; a state dict that
calls it `bias`, as nanoGPT does, or that has none, as nanoGPT's with fused attention, loads all the same.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalSelfAttention(nn.Module):
    """x [B, T, d_model] -> [B, T, d_model]; T is at most `context_length`, `num_heads` divides `d_model`.

    `bias` gives both projections a bias; `dropout` is the probability of both dropouts, on the weights and
    on the result. The buffer `mask` [1, 1, context_length, context_length] is 1 where a query may attend.
    Raises ValueError when the heads do not divide `d_model`.
    """

    mask: Tensor

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        context_length: int,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"num_heads {num_heads} does not divide d_model {d_model}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.c_proj = nn.Linear(d_model, d_model, bias=bias)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)
        allowed = torch.ones(context_length, context_length).tril()
        self.register_buffer("mask", allowed.view(1, 1, context_length, context_length))

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape

        # One product for q, k and v together, cut apart again along the channels.
        qkv = self.c_attn(x)  # (B, T, C) -> (B, T, 3C)
        q, k, v = qkv.split(self.d_model, dim=2)  # (B, T, 3C) -> 3 times (B, T, C)

        q = q.view(B, T, self.num_heads, self.head_dim)  # (B, T, C) -> (B, T, H, D)
        k = k.view(B, T, self.num_heads, self.head_dim)  # (B, T, C) -> (B, T, H, D)
        v = v.view(B, T, self.num_heads, self.head_dim)  # (B, T, C) -> (B, T, H, D)

        # `@` multiplies the last two axes and repeats over the others, so T and D must come last.
        q = q.transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)
        k = k.transpose(1, 2)  # (B, S, H, D) -> (B, H, S, D)
        v = v.transpose(1, 2)  # (B, S, H, D) -> (B, H, S, D)

        k_t = k.transpose(-2, -1)  # (B, H, S, D) -> (B, H, D, S)
        att = q @ k_t  # (B, H, T, D) @ (B, H, D, S) -> (B, H, T, S)
        # Products of longer vectors are larger; without the scale the softmax would saturate.
        att = att * (1.0 / self.head_dim**0.5)

        allowed = self.mask[:, :, :T, :T]  # (1, 1, context, context) -> (1, 1, T, S)
        att = att.masked_fill(allowed == 0, float("-inf"))  # exp(-inf) = 0: no weight on the future
        att = F.softmax(att, dim=-1)  # each query's weights over the keys sum to 1
        att = self.attn_dropout(att)

        y = att @ v  # (B, H, T, S) @ (B, H, S, D) -> (B, H, T, D)
        # Back to tokens first; `view` can merge H and D only where they lie next to each other in memory.
        y = y.transpose(1, 2)  # (B, H, T, D) -> (B, T, H, D)
        y = y.contiguous()
        y = y.view(B, T, C)  # (B, T, H, D) -> (B, T, C)
        y = self.c_proj(y)  # (B, T, C) -> (B, T, C): mixes the heads
        output: Tensor = self.resid_dropout(y)
        return output

    def _load_from_state_dict(
        self, state_dict: MutableMapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # `load_state_dict` hands over a copy of the caller's mapping: renaming in it harms nobody.
        if f"{prefix}mask" not in state_dict:
            state_dict[f"{prefix}mask"] = state_dict.pop(f"{prefix}bias", self.mask)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
