"""AS118: a mask has a dtype that the operation does not take.

attnscope check samples/as118_mask_dtype.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(6, 6).tril())

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(~self.mask, float("-inf"))


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(6, 6).tril().bool())

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(~self.mask, float("-inf"))
