"""AS134: calls without end.

attnscope check samples/as134_endless_recursion.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        return self(x)


class Mended(nn.Module):
    def forward(self, x):
        return x
