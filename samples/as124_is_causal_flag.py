"""AS124: `is_causal` and a mask contradict each other.

attnscope check samples/as124_is_causal_flag.py:Broken --input "torch.randn(2, 6, 16)"
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x, is_causal=True)[0]


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        mask = torch.ones(6, 6, device=x.device).triu(1).bool()
        return self.attn(x, x, x, attn_mask=mask, is_causal=True)[0]
