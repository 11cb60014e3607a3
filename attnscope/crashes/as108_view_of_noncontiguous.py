"""AS108: a `view` of memory that is not contiguous.

`transpose` and `permute` move no data: they only read the same memory in another order. After them `view`
cannot merge axes that no longer lie side by side.

It is bad because the code looks right, and is, but for the copy that `view` refuses to make.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            b, t, c = x.shape
            heads = x.view(b, t, 2, c // 2).transpose(1, 2)
            return heads.transpose(1, 2).transpose(2, 3).view(b, t, c)

Cure: `.reshape(…)`, or `.contiguous().view(…)`: both copy where a copy is needed. Where the sizes that are
asked for have axes in another order, cut first and `transpose` then: a copy would mix tokens and heads.

    - return heads.transpose(1, 2).transpose(2, 3).view(b, t, c)
    + return heads.transpose(1, 2).transpose(2, 3).reshape(b, t, c)
"""

from __future__ import annotations

import ast
import itertools
import math
from typing import Any

from attnscope.axes.dims import regroup
from attnscope.crashes.cause import defined, unique
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import UNKNOWN, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS108"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError):
        return None
    worded = "view size is not compatible" in scene.words
    found = scene.op.asked() if scene.op is not None and scene.op.name == "view" else None
    if found is None or scene.op is None:
        return _bare(scene) if worded else None
    node, tensor, nodes, wanted = found
    if not worded and (tensor.is_contiguous() or scene.value(scene.op.node) is not UNKNOWN):
        return None
    labels: list[Label] = []
    cause = ""
    for link in scene.history(node):
        if (
            link.kind == "op"
            and is_tensor(link.before)
            and is_tensor(link.value)
            and link.before.is_contiguous()
            and not link.value.is_contiguous()
        ):
            cause = link.name
            labels.append(scene.label(link.node, f"made non-contiguous here, by `{link.name}`"))
            break
    labels += defined(scene, node)
    named = isinstance(node, ast.Name | ast.Attribute)
    subject = f"`{scene.text(node)}`" if named else "its memory"
    message = f"`view` cannot merge axes of {subject if named else 'a tensor'}: the memory is not contiguous"
    call = scene.op.node
    arguments = ", ".join(scene.text(arg) for arg in call.args) if isinstance(call, ast.Call) else "…"
    shape = f"{scene.shape(tensor, node)} with strides {list(tensor.stride())}"
    return scene.finding(
        CODE,
        message,
        label=f"needs contiguous memory{f' after `{cause}`' if cause else ''}",
        labels=unique(labels),
        notes=[f"`{scene.text(node)}` is {shape}"],
        help=_moved(scene, tensor, nodes, wanted)
        or f"use `.reshape({arguments})` or `.contiguous().view({arguments})`",
    )


def _moved(scene: Scene, tensor: Any, nodes: list[ast.expr], wanted: list[Any]) -> str:
    """The cure where the sizes that are asked for have axes in another order, tried on such a tensor.

    Memory that is only cut or joined cannot exchange axes: `reshape` would mix them.
    """
    if any(type(size) is not int for size in wanted) or not tensor.numel():
        return ""
    have, free = [int(n) for n in tensor.shape], math.prod(size for size in wanted if size != -1)
    want = [tensor.numel() // max(free, 1) if size == -1 else size for size in wanted]
    if math.prod(want) != tensor.numel() or _keeps_axes(have, want):
        return ""
    words = [scene.text(one) for one in nodes]
    if len(set(words)) < len(words) or any(isinstance(one, ast.Starred) for one in nodes):
        words = [str(size) for size in wanted]
    for i, j in _swaps(len(want)):
        sizes = _swapped(want, i, j)
        if _keeps_axes(have, sizes):
            cut = f".{_cutting(tensor, sizes)}({', '.join(_swapped(words, i, j))})"
            return f"the axes have to be moved: `{'' if sizes == have else cut}.transpose({i}, {j})`"
    for i, j in _swaps(len(have)):
        if _keeps_axes(_swapped(have, i, j), want):
            cut = f".{_cutting(tensor.transpose(i, j), want)}({', '.join(words)})"
            return f"the axes have to be moved first: `.transpose({i}, {j}){cut}`"
    return ""


def _keeps_axes(before: list[int], after: list[int]) -> bool:
    """Whether each axis is only cut in parts, or joined with its neighbours."""
    groups = regroup(before, after)
    return groups is not None and all(
        min(sum(before[i] > 1 for i in left), sum(after[j] > 1 for j in right)) <= 1 for left, right in groups
    )


def _cutting(tensor: Any, sizes: list[int]) -> str:
    try:
        tensor.view(sizes)
    except RuntimeError:
        return "reshape"
    return "view"


def _swaps(axes: int) -> list[tuple[int, int]]:
    """Pairs of axes, neighbours first."""
    return sorted(itertools.combinations(range(axes), 2), key=lambda pair: pair[1] - pair[0])


def _swapped(items: list[Any], i: int, j: int) -> list[Any]:
    moved = list(items)
    moved[i], moved[j] = moved[j], moved[i]
    return moved


def _bare(scene: Scene) -> Diagnostic:
    return scene.finding(
        CODE,
        "`view` cannot merge axes here: the memory is not contiguous",
        notes=[scene.words],
        help="use `.reshape(…)` or `.contiguous().view(…)`",
    )
