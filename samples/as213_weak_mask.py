"""AS213: masked keys keep weight.

attnscope check samples/as213_weak_mask.py:Broken --input "torch.randn(2, 6, 16)"
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
        scores = q @ k.transpose(-2, -1) / 8**0.5 + keep
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        keep = torch.ones(t, t, device=x.device).tril()
        scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(keep == 0, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
