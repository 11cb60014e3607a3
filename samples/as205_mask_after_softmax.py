"""AS205: the mask is applied after the softmax.

attnscope check samples/as205_mask_after_softmax.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        keep = torch.ones(t, t, device=x.device).tril()
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1) * keep
        return (weights @ v).transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        keep = torch.ones(t, t, device=x.device).tril()
        scores = q @ k.transpose(-2, -1) / 8**0.5
        weights = scores.masked_fill(keep == 0, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(b, t, c)
