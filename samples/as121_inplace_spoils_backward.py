"""AS121: an in-place write changed a value that the backward pass needs.

attnscope check samples/as121_inplace_spoils_backward.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)

    def forward(self, x):
        weights = (self.query(x) @ x.transpose(-2, -1)).softmax(-1)
        weights.mul_(0.5)
        return weights @ x


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)

    def forward(self, x):
        weights = (self.query(x) @ x.transpose(-2, -1)).softmax(-1)
        weights = weights * 0.5
        return weights @ x
