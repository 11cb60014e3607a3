"""AS136: a size is no integer.

attnscope check samples/as136_size_is_no_integer.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        return x.view(b, t, 2, c / 2)


class Mended(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        return x.view(b, t, 2, c // 2)
