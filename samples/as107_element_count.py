"""AS107: the heads are merged with the input's width, not with the embedding's.

attnscope check samples/as107_element_count.py:Broken --input "torch.randn(2, 6, 16)"
"""

# The fault is meant.
# ruff: noqa: RUF059

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self, dim=16, embed_dim=20, heads=2, context=8):
        super().__init__()
        self.embed_dim, self.heads = embed_dim, heads
        self.qkv = nn.Linear(dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (u.view(b, t, self.heads, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / (self.embed_dim // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2)
        return self.out(y.reshape(b, t, width))


class Mended(nn.Module):
    def __init__(self, dim=16, embed_dim=20, heads=2, context=8):
        super().__init__()
        self.embed_dim, self.heads = embed_dim, heads
        self.qkv = nn.Linear(dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (u.view(b, t, self.heads, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / (self.embed_dim // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2)
        return self.out(y.reshape(b, t, self.embed_dim))
