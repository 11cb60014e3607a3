"""AS132: tensors in a state dict have other sizes than in the module.

attnscope check samples/as132_load_sizes.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril())
        self.load_state_dict({"mask": torch.ones(16, 16).tril()})

    def forward(self, x):
        return x


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(16, 16).tril())
        self.load_state_dict({"mask": torch.ones(16, 16).tril()})

    def forward(self, x):
        return x
