"""AS124: `is_causal=True` without the mask that it is a hint about.

attnscope check samples/as124_is_causal_flag.py:Broken --input "torch.randn(2, 6, 16)"
"""

# The fault is meant.
# ruff: noqa: F841

from torch import nn


class Broken(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device, dtype=x.dtype)
        y, _ = self.attn(x, x, x, is_causal=True)
        return y


class Mended(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device, dtype=x.dtype)
        y, _ = self.attn(x, x, x, attn_mask=mask, is_causal=True)
        return y
