"""AS103: `nn.Module.__init__` ran a second time and emptied the module.

attnscope check samples/as103_init_twice.py:Broken --input "torch.randn(2, 6, 16)"
"""

from torch import nn


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)
        nn.Module.__init__(self)

    def forward(self, x):
        return self.query(x)


class Mended(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)

    def forward(self, x):
        return self.query(x)
