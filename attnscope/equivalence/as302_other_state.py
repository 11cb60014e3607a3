"""AS302: two modules give the same outputs but keep other state.

Called in place, both give the same. But one keeps a tensor that does not move with it to another device, a
layer in a plain list that PyTorch neither trains nor saves, writes into its input, or takes weights from a
checkpoint in another way.

Why it matters: the difference shows only later, when the module is trained, moved, saved or loaded.

Wrong:

    self.heads = [nn.Linear(d, d) for _ in range(n)]

Right:

    self.heads = nn.ModuleList(nn.Linear(d, d) for _ in range(n))
"""

from __future__ import annotations

CODE = "AS302"
TITLE = "two modules keep other state"
