"""Several causal heads side by side, each with its own projections, outputs concatenated.

Follows section 3.6.1 of Raschka, Build a Large Language Model (From Scratch), 2024.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnscope.layers.causal import CausalAttention


class StackedAttention(nn.Module):
    """x [B, T, d_in] -> [B, T, num_heads * d_out]: `d_out` is the width of one head.

    The parameters are those of `CausalAttention`, under `heads.0`, `heads.1`, …
    """

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
        self.heads = nn.ModuleList(
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias) for _ in range(num_heads)
        )

    def forward(self, x: Tensor) -> Tensor:
        contexts = [head(x) for head in self.heads]  # (B, T, C) -> H times (B, T, D)
        return torch.cat(contexts, dim=-1)  # H times (B, T, D) -> (B, T, H*D)
