"""AS217: layers or weights that were never registered.

attnscope check samples/as217_unregistered.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = [nn.Linear(16, 24) for _ in range(2)]

    def forward(self, x):
        parts = [head(x).chunk(3, -1) for head in self.heads]
        return torch.cat([F.scaled_dot_product_attention(*p, is_causal=True) for p in parts], -1)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(16, 24) for _ in range(2)])

    def forward(self, x):
        parts = [head(x).chunk(3, -1) for head in self.heads]
        return torch.cat([F.scaled_dot_product_attention(*p, is_causal=True) for p in parts], -1)
