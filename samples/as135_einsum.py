"""AS135: the equation of an `einsum` does not fit its operands.

attnscope check samples/as135_einsum.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        return torch.einsum("bthd,bshd->bhts", x, x)


class Mended(nn.Module):
    def forward(self, x):
        return torch.einsum("btc,bsc->bts", x, x)
