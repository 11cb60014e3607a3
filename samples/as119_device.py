"""AS119: tensors on different devices meet.

attnscope check samples/as119_device.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(16, 16)

    def forward(self, x):
        return x + self.scale[:6]


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(16, 16), persistent=False)

    def forward(self, x):
        return x + self.scale[:6]
