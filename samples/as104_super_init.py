"""AS104: `super().__init__()` was not called, or called too late.

attnscope check samples/as104_super_init.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        self.query = nn.Linear(16, 16)

    def forward(self, x):
        return self.query(x)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)

    def forward(self, x):
        return self.query(x)
