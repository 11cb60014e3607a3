"""AS215: a tensor that is neither a parameter nor a buffer.

attnscope check samples/as215_not_saved.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.start = torch.randn(16)

    def forward(self, x):
        b, t, c = x.shape
        x = x + self.start.to(x)
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("start", torch.randn(16))

    def forward(self, x):
        b, t, c = x.shape
        x = x + self.start
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)
