"""AS128: a name is used that does not exist there.

attnscope check samples/as128_unknown_name.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        scale = x.size(-1) ** -0.5
        return x * scal


class Mended(nn.Module):
    def forward(self, x):
        scale = x.size(-1) ** -0.5
        return x * scale
