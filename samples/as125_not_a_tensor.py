"""AS125: None, a tuple or another thing stands where a tensor (or a layer) is needed.

attnscope check samples/as125_not_a_tensor.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        y = self.attn(x, x, x)
        return y.view(2, 6, 16)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x):
        y, _ = self.attn(x, x, x)
        return y.view(2, 6, 16)
