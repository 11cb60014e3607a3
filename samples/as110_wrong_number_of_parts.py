"""AS110: a split or an unpacking has another number of parts than the code expects.

attnscope check samples/as110_wrong_number_of_parts.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 32)

    def forward(self, x):
        q, k, v = self.qkv(x).split(16, dim=-1)
        return q @ k.transpose(-2, -1) @ v


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).split(16, dim=-1)
        return q @ k.transpose(-2, -1) @ v
