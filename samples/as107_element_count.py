"""AS107: a `view` or `reshape` asks for another number of elements than there are.

attnscope check samples/as107_element_count.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_dim = 20
        self.query = nn.Linear(16, 20)

    def forward(self, x):
        b, t, width = x.shape
        q = self.query(x)
        return q.view(b, t, width)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_dim = 20
        self.query = nn.Linear(16, 20)

    def forward(self, x):
        b, t, width = x.shape
        q = self.query(x)
        return q.view(b, t, self.embed_dim)
