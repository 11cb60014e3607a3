"""AS130: a dict, a list or a sequence of layers has no such entry.

attnscope check samples/as130_missing_key.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.sizes = {"n_head": 2}

    def forward(self, x):
        return x * self.sizes["n_heads"]


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.sizes = {"n_head": 2}

    def forward(self, x):
        return x * self.sizes["n_head"]
