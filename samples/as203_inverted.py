"""AS203: the mask is inverted: what should be seen is blocked, and what should be blocked is seen.

attnscope check samples/as203_inverted.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        blocked = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=blocked)
        return y.transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        blocked = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=~blocked)
        return y.transpose(1, 2).reshape(b, t, c)
