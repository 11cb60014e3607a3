"""AS138: a tensor of many elements is asked whether it is true.

attnscope check samples/as138_truth_of_a_tensor.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x, mask=None):
        mask = x > 0
        if mask:
            x = x * 2
        return x


class Mended(nn.Module):
    def forward(self, x, mask=None):
        mask = x > 0
        if mask is not None:
            x = x * 2
        return x
