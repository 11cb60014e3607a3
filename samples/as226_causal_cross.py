r"""AS226: a causal triangle lies over a second sequence.

attnscope check samples/as226_causal_cross.py:Broken \
    --input "x=torch.randn(2, 6, 16)" \
    --input "memory=torch.randn(2, 5, 16)"
"""

from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(self, x, memory):
        b, t, c = x.shape
        q = self.q(x).view(b, t, 2, 8).transpose(1, 2)
        k, v = (u.view(b, -1, 2, 8).transpose(1, 2) for u in self.kv(memory).chunk(2, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(self, x, memory):
        b, t, c = x.shape
        q = self.q(x).view(b, t, 2, 8).transpose(1, 2)
        k, v = (u.view(b, -1, 2, 8).transpose(1, 2) for u in self.kv(memory).chunk(2, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(b, t, c)
