"""AS102: an attribute is set on one path only, and read on another.

attnscope check samples/as102_set_on_one_path.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self, flash=True):
        super().__init__()
        self.flash = flash
        if not flash:
            self.register_buffer("mask", torch.ones(8, 8).tril())

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(self.mask[:6, :6] == 0, float("-inf"))


class Mended(nn.Module):
    def __init__(self, flash=True):
        super().__init__()
        self.flash = flash
        self.register_buffer("mask", torch.ones(8, 8).tril())

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(self.mask[:6, :6] == 0, float("-inf"))
