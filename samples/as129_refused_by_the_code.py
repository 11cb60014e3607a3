"""AS129: the code itself refuses: an `assert` or a `raise`.

attnscope check samples/as129_refused_by_the_code.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        assert x.dim() == 4
        return x


class Mended(nn.Module):
    def forward(self, x):
        assert x.dim() == 3
        return x
