"""AS133: the names in a state dict are not the module's.

attnscope check samples/as133_load_names.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        weights = {"_orig_mod.qkv.weight": torch.zeros(48, 16), "_orig_mod.qkv.bias": torch.zeros(48)}
        self.load_state_dict(weights)

    def forward(self, x):
        return self.qkv(x)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        weights = {"_orig_mod.qkv.weight": torch.zeros(48, 16), "_orig_mod.qkv.bias": torch.zeros(48)}
        self.load_state_dict({name.removeprefix("_orig_mod."): w for name, w in weights.items()})

    def forward(self, x):
        return self.qkv(x)
