"""AS302: two modules give the same outputs but keep other state.

Called in place, both give the same. But one keeps a tensor that does not move with it to another device, a
layer in a plain list that PyTorch neither trains nor saves, writes into its input, or takes weights from a
checkpoint in another way.

Why it matters: the difference shows only later, when the module is trained, moved, saved or loaded.

Example:

    self.heads = [nn.Linear(d, d) for _ in range(n)]

Cure: register what belongs to the module: layers in `nn.ModuleList`, masks and tables with
`register_buffer(..., persistent=False)`; write into copies; transpose or permute weights where they are
loaded.
"""

from __future__ import annotations

CODE = "AS302"
TITLE = "two modules keep other state"
