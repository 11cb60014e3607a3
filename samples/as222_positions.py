"""AS222: positions are computed and have no effect.

attnscope check samples/as222_positions.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def rotate(self, u):
        place = torch.arange(u.shape[-2], device=u.device)[:, None]
        angle = place * 100.0 ** (-torch.arange(4, device=u.device) / 4)
        a, b = u.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 8).unbind(2)
        q, k = self.rotate(q), self.rotate(k)
        q, k, v = (u.transpose(1, 2) for u in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def rotate(self, u):
        place = torch.arange(u.shape[-2], device=u.device)[:, None]
        angle = place * 100.0 ** (-torch.arange(4, device=u.device) / 4)
        a, b = u.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 8).unbind(2)
        q, k, v = (u.transpose(1, 2) for u in (q, k, v))
        q, k = self.rotate(q), self.rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)
