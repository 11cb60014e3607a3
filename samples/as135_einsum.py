"""AS135: the equation names the keys' axes in another order than they have.

attnscope check samples/as135_einsum.py:Broken --input "torch.randn(2, 6, 16)"
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
        q, k, v = (u.view(b, t, self.heads, -1) for u in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bthd,bhsd->bhts", q, k) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        return self.out(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))


class Mended(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril().bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, self.heads, -1) for u in self.qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bthd,bshd->bhts", q, k) / (c // self.heads) ** 0.5
        weights = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        return self.out(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))
