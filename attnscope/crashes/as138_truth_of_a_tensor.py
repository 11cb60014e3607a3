"""AS138: a tensor of many elements is asked whether it is true.

`if mask:`, `mask or default`, `not mask`, `a == b and …`: Python wants one answer, the tensor has many.

It is bad because with a tensor of one element it works.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x, mask=None):
            mask = x > 0
            if mask:
                x = x * 2
            return x

Cure: ask `if mask is not None`, or reduce with `.any()` or `.all()`.

    - if mask:
    + if mask is not None:
"""

from __future__ import annotations

import ast

from attnscope.crashes.cause import defined
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic

CODE = "AS138"


def diagnose(scene: Scene) -> Diagnostic | None:
    words = scene.words
    if not isinstance(scene.error, RuntimeError) or "ambiguous" not in words or "oolean value" not in words:
        return None
    node = scene.node
    text = scene.text(node, 50)
    value = scene.value(node)
    labels = defined(scene, node) if isinstance(node, ast.expr) else []
    shown = f" {scene.shape(value, node)}" if is_tensor(value) else ""
    name = node.id if isinstance(node, ast.Name) else None
    cure = f"ask `{name} is not None`, or" if name else "reduce it:"
    return scene.finding(
        CODE,
        f"`{text}`{shown} has many elements and is asked whether it is true",
        label="true or false is wanted here",
        labels=labels,
        help=f"{cure} `.any()` or `.all()`",
    )
