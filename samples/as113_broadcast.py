"""AS113: two tensors do not broadcast against each other.

attnscope check samples/as113_broadcast.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        y = x.transpose(1, 2)
        return x + y


class Mended(nn.Module):
    def forward(self, x):
        y = x.transpose(1, 2)
        return x + y.transpose(1, 2)
