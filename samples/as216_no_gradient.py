"""AS216: parameters that get no gradient.

attnscope check samples/as216_no_gradient.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn
from torch.nn import functional as F


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.k(x), self.k(x), self.v(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
