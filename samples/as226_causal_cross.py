"""AS226: a causal triangle lies over a second sequence.

attnscope check samples/as226_causal_cross.py:Broken --input "x=torch.randn(2, 6, 16)" \
    --input "memory=torch.randn(2, 5, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(self, x, memory):
        b, t, c = x.shape
        q = self.q(x).view(b, t, 2, 8).transpose(1, 2)
        k, v = (u.view(b, -1, 2, 8).transpose(1, 2) for u in self.kv(memory).chunk(2, -1))
        scores = q @ k.transpose(-2, -1) / 8**0.5
        late = torch.ones(t, k.shape[2], device=x.device).triu(1).bool()
        weights = scores.masked_fill(late, float("-inf")).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(self, x, memory):
        b, t, c = x.shape
        q = self.q(x).view(b, t, 2, 8).transpose(1, 2)
        k, v = (u.view(b, -1, 2, 8).transpose(1, 2) for u in self.kv(memory).chunk(2, -1))
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(b, t, c)
