"""AS211: a `view` mixes tokens, heads or channels.

attnscope check samples/as211_mixed_by_view.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, 2, t, 8) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)
