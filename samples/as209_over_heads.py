"""AS209: heads attend to heads, not tokens to tokens.

attnscope check samples/as209_over_heads.py:Broken --input "torch.randn(2, 6, 16)" --no-causal
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        b, t, c = x.shape
        heads = 2
        q, k, v = (f(x).view(b, t, heads, c // heads) for f in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return (weights @ v).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        b, t, c = x.shape
        heads = 2
        q, k, v = (f(x).view(b, t, heads, c // heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(b, t, c)
