"""AS139: a number does not fit the dtype.

float16 ends at 65504. A mask value such as -1e9 cannot be written into a tensor of half precision.

It is bad because the same line works in float32, that is, until the module is cast.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            scores = (x @ x.transpose(-2, -1)).half()
            return scores.masked_fill(scores == 0, -1e9)

Cure: `float("-inf")` under a mask that leaves every row one key, else `torch.finfo(scores.dtype).min`.

    - return scores.masked_fill(scores == 0, -1e9)
    + return scores.masked_fill(scores == 0, float("-inf"))
"""

from __future__ import annotations

import ast

import torch

from attnscope.crashes.cause import defined, trail
from attnscope.crashes.scene import Scene, dtype_name
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS139"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError | OverflowError) or "without overflow" not in scene.words:
        return None
    op = scene.op
    if op is None:
        return None
    numbers = [
        (node, value)
        for node, value in (*op.inputs, *op.keywords.values())
        if type(value) in (int, float) and abs(value) > 1000
    ]
    tensor = next(iter(op.tensors), None)
    kind = tensor[1].dtype if tensor is not None else op.keywords.get("dtype", (None, None))[1]
    labels: list[Label] = []
    if numbers:
        node, value = numbers[0]
        labels += scene.set_at(node, f"`{scene.text(node).split('.')[-1]}` is set here")
        labels += defined(scene, node) if isinstance(node, ast.Name) else []
        said = scene.text(node, 30)
        shown = f"`{said}`" + (f" ({value:g})" if not isinstance(node, ast.Constant | ast.UnaryOp) else "")
    else:
        shown = "a number here"
    if tensor is not None:
        labels += trail(scene, tensor[0], {label.span.line for label in labels})
    name = dtype_name(kind) if isinstance(kind, torch.dtype) else "this dtype"
    limit = _limit(kind)
    where = f"{scene.text(tensor[0], 30)}.dtype" if tensor is not None and is_tensor(tensor[1]) else name
    return scene.finding(
        CODE,
        f"{shown} does not fit {name}{limit}",
        label=f"{name} cannot hold it",
        labels=labels,
        help=f'fill with `float("-inf")`, or with `torch.finfo({where}).min`',
    )


def _limit(kind: object) -> str:
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        return ""
    return f", which ends at {torch.finfo(kind).max:g}"
