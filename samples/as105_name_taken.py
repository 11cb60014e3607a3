"""AS105: a buffer, parameter or submodule is given a name that cannot be given.

attnscope check samples/as105_name_taken.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = None
        self.register_buffer("mask", torch.ones(8, 8).tril())

    def forward(self, x):
        return x


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril())

    def forward(self, x):
        return x
