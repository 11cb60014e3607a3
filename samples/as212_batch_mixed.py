"""AS212: the entries of a batch see each other.

attnscope check samples/as212_batch_mixed.py:Broken --input "torch.randn(2, 6, 16)" --no-causal
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]
