"""AS126: an axis is named that the tensor does not have.

attnscope check samples/as126_axis_out_of_range.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        return x.transpose(1, 3)


class Mended(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)
