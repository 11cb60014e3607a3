"""AS114: a mask does not have the shape of the scores that it masks.

attnscope check samples/as114_mask_shape.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril().bool())

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(~self.mask, float("-inf"))


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril().bool())

    def forward(self, x):
        scores = x @ x.transpose(-2, -1)
        return scores.masked_fill(~self.mask[:6, :6], float("-inf"))
