"""AS131: the weights in a state dict are transposed.

attnscope check samples/as131_load_transposed.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        weights = {"qkv.weight": torch.zeros(16, 48), "qkv.bias": torch.zeros(48)}
        self.load_state_dict(weights)

    def forward(self, x):
        return self.qkv(x)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        weights = {"qkv.weight": torch.zeros(16, 48), "qkv.bias": torch.zeros(48)}
        self.load_state_dict({name: w.t() for name, w in weights.items()})

    def forward(self, x):
        return self.qkv(x)
