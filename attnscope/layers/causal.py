"""One causal attention head, with a projection each for queries, keys and values.

Follows section 3.5 of Raschka, Build a Large Language Model (From Scratch), 2024: the same parameter names,
the same order of construction, the same mask.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CausalAttention(nn.Module):
    """x [B, T, d_in] -> [B, T, d_out]; T is at most `context_length`.

    `dropout` is the probability with which a weight is dropped in training. The buffer `mask`
    [context_length, context_length] is 1 above the diagonal, where a key lies in the query's future.
    """

    mask: Tensor

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float = 0.0, qkv_bias: bool = False
    ) -> None:
        super().__init__()
        self.d_out = d_out
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(context_length, context_length).triu(diagonal=1))

    def forward(self, x: Tensor) -> Tensor:
        T = x.shape[1]

        # What each token looks for, what it offers, and what it hands over.
        queries = self.W_query(x)  # (B, T, C) -> (B, T, D)
        keys = self.W_key(x)  # (B, T, C) -> (B, T, D)
        values = self.W_value(x)  # (B, T, C) -> (B, T, D)

        keys_t = keys.transpose(1, 2)  # (B, S, D) -> (B, D, S)
        scores = queries @ keys_t  # (B, T, D) @ (B, D, S) -> (B, T, S)
        # Products of longer vectors are larger; without the scale the softmax would saturate.
        scores = scores / self.d_out**0.5

        blocked = self.mask[:T, :T].bool()  # (context, context) -> (T, S)
        scores = scores.masked_fill(blocked, float("-inf"))  # exp(-inf) = 0: no weight on the future
        weights = torch.softmax(scores, dim=-1)  # each query's weights over the keys sum to 1
        weights = self.dropout(weights)

        context: Tensor = weights @ values  # (B, T, S) @ (B, S, D) -> (B, T, D)
        return context
