"""AS123: the head is called without its mask.

attnscope check samples/as123_call_arguments.py:Broken --input "torch.randn(2, 6, 16)"
"""

# The fault is meant.
# ruff: noqa: F841

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, head_dim) for _ in range(3))

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / self.k.out_features**0.5
        return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ self.v(x)


class Broken(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = nn.ModuleList(Head(dim, dim // heads) for _ in range(heads))
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        t = x.size(1)
        mask = self.mask[:t, :t]
        return torch.cat([head(x) for head in self.heads], dim=-1)


class Mended(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = nn.ModuleList(Head(dim, dim // heads) for _ in range(heads))
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        t = x.size(1)
        mask = self.mask[:t, :t]
        return torch.cat([head(x, mask) for head in self.heads], dim=-1)
