r"""AS223: numbers overflow in the type that is used.

attnscope check samples/as223_overflow.py:Broken \
    --input "torch.randn(2, 6, 16, dtype=torch.float16)" \
    --dtype float16
"""

import torch
from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        nn.init.normal_(self.qkv.weight, std=4.0)

    def forward(self, x):
        b, t, c = x.shape
        low = torch.finfo(x.dtype).min
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        mask = torch.full((t, t), low, dtype=x.dtype, device=x.device).triu(1)
        padding = torch.zeros(b, 1, 1, t, dtype=x.dtype, device=x.device)
        padding[0] = low
        scores = q @ k.transpose(-2, -1) / 8**0.5 + mask + padding
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        nn.init.normal_(self.qkv.weight, std=4.0)

    def forward(self, x):
        b, t, c = x.shape
        low = torch.finfo(x.dtype).min
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        mask = torch.full((t, t), low, dtype=x.dtype, device=x.device).triu(1)
        padding = torch.zeros(b, 1, 1, t, dtype=x.dtype, device=x.device)
        padding[0] = low
        scores = q @ k.transpose(-2, -1) / 8**0.5
        scores = scores.masked_fill(mask + padding < 0, low)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
