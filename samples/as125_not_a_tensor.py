"""AS125: `nn.MultiheadAttention` returns a tuple.

attnscope check samples/as125_not_a_tensor.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device, dtype=x.dtype)
        y = self.attn(x, x, x, attn_mask=mask, is_causal=True)
        return y.flatten(2)


class Mended(nn.Module):
    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device, dtype=x.dtype)
        y, _ = self.attn(x, x, x, attn_mask=mask, is_causal=True)
        return y.flatten(2)
