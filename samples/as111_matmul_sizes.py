"""AS111: the factors of a matrix product do not fit.

attnscope check samples/as111_matmul_sizes.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        q, k = x, x
        return q @ k


class Mended(nn.Module):
    def forward(self, x):
        q, k = x, x
        return q @ k.transpose(-2, -1)
