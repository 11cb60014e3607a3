"""AS116: an index is outside the table that it is looked up in.

attnscope check samples/as116_id_outside_vocabulary.py:Broken --input "torch.full((2, 6), 50)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 16)

    def forward(self, ids):
        return self.tokens(ids)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(51, 16)

    def forward(self, ids):
        return self.tokens(ids)
