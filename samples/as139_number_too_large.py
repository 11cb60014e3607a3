"""AS139: -1e9 is written into scores of half precision.

attnscope check samples/as139_number_too_large.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        scores = scores.half()
        weights = scores.masked_fill(~self.mask[:t, :t], -1e9).float().softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(y)


class Mended(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=-1)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        scores = scores.half()
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).float().softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).reshape(b, t, c)
        return self.out(y)
