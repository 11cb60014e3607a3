"""AS117: tensors of different dtypes meet in one operation.

attnscope check samples/as117_dtypes_differ.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        wide = x.double()
        return x @ wide.transpose(-2, -1)


class Mended(nn.Module):
    def forward(self, x):
        wide = x.double().to(x.dtype)
        return x @ wide.transpose(-2, -1)
