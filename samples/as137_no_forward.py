"""AS137: the module has no `forward`.

attnscope check samples/as137_no_forward.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def foward(self, x):
        return x


class Mended(nn.Module):
    def forward(self, x):
        return x
