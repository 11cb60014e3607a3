"""AS106: a property fails inside, and `nn.Module` reports the property itself as missing.

attnscope check samples/as106_property.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 2

    @property
    def head_dim(self):
        return self.width // self.heads

    def forward(self, x):
        return x / self.head_dim**0.5


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 2
        self.width = 16

    @property
    def head_dim(self):
        return self.width // self.heads

    def forward(self, x):
        return x / self.head_dim**0.5
