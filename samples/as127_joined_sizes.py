"""AS127: tensors that are joined differ in another axis than the one they are joined along.

attnscope check samples/as127_joined_sizes.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        past = torch.zeros(2, 4, 16, device=x.device)
        return torch.cat([past, x], dim=-1)


class Mended(nn.Module):
    def forward(self, x):
        past = torch.zeros(2, 4, 16, device=x.device)
        return torch.cat([past, x], dim=1)
