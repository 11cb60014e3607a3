"""AS109: a size does not divide by the number of parts.

attnscope check samples/as109_not_divisible.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        heads = 3
        return x.view(b, t, heads, c // heads)


class Mended(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        heads = 4
        return x.view(b, t, heads, c // heads)
