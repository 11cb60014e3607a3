"""AS108: a `view` of memory that is not contiguous.

attnscope check samples/as108_view_of_noncontiguous.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        heads = x.view(b, t, 2, c // 2).transpose(1, 2)
        return heads.transpose(1, 2).transpose(2, 3).view(b, t, c)


class Mended(nn.Module):
    def forward(self, x):
        b, t, c = x.shape
        heads = x.view(b, t, 2, c // 2).transpose(1, 2)
        return heads.transpose(1, 2).transpose(2, 3).reshape(b, t, c)
