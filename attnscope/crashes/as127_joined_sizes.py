"""AS127: tensors that are joined differ in another axis than the one they are joined along.

`torch.cat` joins along one axis; all the others must be equal. `torch.stack` needs equal shapes. In a cache
the new keys are joined along the axis of the tokens, which depends on where the heads are by then.

It is bad because an axis that is equal by chance is joined silently.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            past = torch.zeros(2, 4, 16, device=x.device)
            return torch.cat([past, x], dim=-1)

Cure: join along the axis in which they differ (`dim=1`), or bring them to one layout first.

    - return torch.cat([past, x], dim=-1)
    + return torch.cat([past, x], dim=1)
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.cause import causes
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic

CODE = "AS127"


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or op.name not in ("cat", "concat", "concatenate", "stack", "hstack", "vstack"):
        return None
    if not isinstance(scene.error, RuntimeError | IndexError):
        return None
    given = op.argument(0, "tensors")
    if given is None or not isinstance(given[1], tuple | list):
        return None
    items = [value for value in given[1] if is_tensor(value)]
    if len(items) < 2 or len({tuple(item.shape) for item in items}) < 2:
        return None
    nodes: list[ast.AST] = list(given[0].elts) if isinstance(given[0], ast.Tuple | ast.List) else [given[0]]
    if len(nodes) != len(items):
        nodes = [given[0]] * len(items)
    first, other = next(
        (a, b)
        for a in range(len(items))
        for b in range(a + 1, len(items))
        if items[a].shape != items[b].shape
    )
    where = op.argument(1, "dim")
    axis = where[1] if where is not None and type(where[1]) is int else 0
    pair: list[tuple[ast.AST, Any]] = [(nodes[first], items[first]), (nodes[other], items[other])]
    shown = " and ".join(f"`{scene.text(n, 40)}` {scene.shape(v, n)}" for n, v in pair)
    word = "stacked" if op.name == "stack" else f"joined along axis {axis}"
    return scene.finding(
        CODE,
        f"{shown} cannot be {word}",
        label=_reason(items[first], items[other], axis),
        labels=causes(scene, pair),
        help=_cure(op.name, items[first], items[other], axis),
    )


def _differ(left: Any, right: Any) -> list[int]:
    return [i for i, (a, b) in enumerate(zip(left.shape, right.shape, strict=True)) if a != b]


def _reason(left: Any, right: Any, axis: int) -> str:
    if left.dim() != right.dim():
        return f"{left.dim()} axes and {right.dim()}"
    wrong = [i for i in _differ(left, right) if i != axis % left.dim()]
    return (
        ", ".join(f"axis {i}: {int(left.shape[i])} and {int(right.shape[i])}" for i in wrong) or "they differ"
    )


def _cure(name: str, left: Any, right: Any, axis: int) -> str:
    if left.dim() != right.dim():
        return "give both the same number of axes first"
    differ = _differ(left, right)
    if name != "stack" and len(differ) == 1:
        return f"join along axis {differ[0]}, the only one in which they differ: `dim={differ[0]}`"
    if left.dim() == 4 and len(_differ(left, right.transpose(1, 2))) <= 1:
        return (
            f"bring them to one layout: {sizes(left.shape)} and "
            f"{sizes(right.shape)} have axes 1 and 2 swapped"
        )
    return "make all the other axes equal first"
