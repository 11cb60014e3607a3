r"""AS221: padding moves what is not padding.

attnscope check samples/as221_padding.py:Broken \
    --input "x=torch.randn(2, 6, 16)" \
    --input "keep=torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()" \
    --no-causal
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x, keep):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / 8**0.5
        scores = scores.masked_fill(~keep[:, None, :, None], -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x, keep):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / 8**0.5
        scores = scores.masked_fill(~keep[:, None, None, :], -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
