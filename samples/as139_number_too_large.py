"""AS139: a number does not fit the dtype.

attnscope check samples/as139_number_too_large.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def forward(self, x):
        scores = (x @ x.transpose(-2, -1)).half()
        return scores.masked_fill(scores == 0, -1e9)


class Mended(nn.Module):
    def forward(self, x):
        scores = (x @ x.transpose(-2, -1)).half()
        return scores.masked_fill(scores == 0, float("-inf"))
