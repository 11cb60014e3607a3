"""AS112: a layer is given another number of features than it takes.

attnscope check samples/as112_wrong_features.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        weights = torch.softmax(x @ x.transpose(-2, -1), dim=-1)
        return self.out(weights)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(16, 16)

    def forward(self, x):
        weights = torch.softmax(x @ x.transpose(-2, -1), dim=-1)
        return self.out(weights @ x)
