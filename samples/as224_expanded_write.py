"""AS224: a step writes into expanded memory.

attnscope check samples/as224_expanded_write.py:Broken --input "torch.randn(2, 6, 16)"
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
        bias = torch.zeros(1, 1, 1, t, device=x.device).expand(b, 2, t, t)
        bias.masked_fill_(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
        return ((q @ k.mT / 8**0.5 + bias).softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        bias = torch.zeros(1, 1, 1, t, device=x.device).expand(b, 2, t, t)
        bias = bias.masked_fill(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
        return ((q @ k.mT / 8**0.5 + bias).softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
