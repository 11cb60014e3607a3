"""AS219: key/value heads are repeated in the wrong order.

attnscope check samples/as219_kv_heads.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        k, v = (u.view(b, t, 2, 4).transpose(1, 2) for u in self.kv(x).chunk(2, -1))
        k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        k, v = (u.view(b, t, 2, 4).transpose(1, 2) for u in self.kv(x).chunk(2, -1))
        k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)
