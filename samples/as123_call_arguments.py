"""AS123: something is called with arguments that it does not take.

attnscope check samples/as123_call_arguments.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Head(nn.Module):
    def forward(self, x, mask):
        return x * mask


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, x):
        return self.head(x)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, x):
        return self.head(x, x > 0)
