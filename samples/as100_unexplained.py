"""AS100: the module raised, and no rule knows why.

attnscope check samples/as100_unexplained.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        return x + 1 / (x.size(1) - 6)


class Mended(nn.Module):
    def forward(self, x):
        return x + 1 / x.size(1)
