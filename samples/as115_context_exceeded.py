"""AS115: the text is longer than the module's context.

attnscope check samples/as115_context_exceeded.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, 4, 16))

    def forward(self, x):
        return x + self.positions[:, : x.size(1)]


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, 8, 16))

    def forward(self, x):
        return x + self.positions[:, : x.size(1)]
