"""AS101: an attribute is read that was never set.

attnscope check samples/as101_missing_attribute.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril().view(1, 8, 8))

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(self.bias[:, :6, :6] == 0, float("-inf"))


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril().view(1, 8, 8))

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(self.mask[:, :6, :6] == 0, float("-inf"))
