"""AS126: an axis is named that the tensor does not have.

A tensor with n axes has the axes 0 to n-1, or -n to -1. A `transpose(1, 3)` of three axes, a `permute` with
another number of axes, a subscript with too many: the tensor is not laid out as the line thinks, most often
because it was not yet cut into heads, or already merged.

It is bad because the line itself is right for another layout.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            return x.transpose(1, 3)

Cure: count from the end (`transpose(-2, -1)`), or bring the tensor into the layout first.

    - return x.transpose(1, 3)
    + return x.transpose(1, 2)
"""

from __future__ import annotations

import re

from attnscope.crashes.cause import causes
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic

CODE = "AS126"
_RANGE = re.compile(r"[Dd]imension out of range.*\[(-?\d+), (-?\d+)\], but got (-?\d+)")
_COUNTS = (
    "number of dimensions in the tensor input does not match",
    "too many indices for tensor",
    "number of dimensions in the tensor",
    "expects a tensor with",
    "only supported on matrices or batches of matrices",
    "must be greater or equal to the number of dimensions",
    "number of dims don't match",
    "can not be smaller than number of dimensions",
    "repeated dim",
    "duplicate dims",
    "tensor.mT",
    "expected 3D",
    "must be a 3D tensor",
    "at least 2 dimensions",
    "number of sizes provided",
)


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, IndexError | RuntimeError):
        return None
    found = _RANGE.search(scene.words)
    if not found and not any(words in scene.words for words in _COUNTS):
        return None
    tensors = op.tensors
    if not tensors:
        return None
    node, tensor = tensors[0]
    text = scene.text(node, 50)
    axes = f"{tensor.dim()} {'axis' if tensor.dim() == 1 else 'axes'}"
    if found:
        message = f"`{text}` {scene.shape(tensor, node)} has {axes}, and no axis {found[3]}"
        cure = f"name an axis from {-tensor.dim()} to {tensor.dim() - 1}"
    else:
        message = f"`{op.name}` does not fit `{text}`, which has {axes}: {sizes(tensor.shape)}"
        cure = f"name {axes}, or bring `{text}` into the layout that is meant"
    if tensor.dim() == 3 and op.name in ("transpose", "permute", "swapaxes"):
        cure += "; it has no axis for the heads here"
    return scene.finding(
        CODE,
        message,
        label=f"`{text}` has {axes}",
        labels=causes(scene, [(n, v) for n, v in tensors if is_tensor(v)][:2]),
        help=cure,
    )
