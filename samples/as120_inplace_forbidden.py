"""AS120: an in-place write that PyTorch forbids.

attnscope check samples/as120_inplace_forbidden.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).split(16, dim=-1)
        q.mul_(0.25)
        return q @ k.transpose(-2, -1) @ v


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).split(16, dim=-1)
        q = q * 0.25
        return q @ k.transpose(-2, -1) @ v
