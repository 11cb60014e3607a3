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

Cure: `.reshape(…)`, or `.contiguous().view(…)`: both copy where a copy is needed.
"""

from __future__ import annotations

import ast

from attnscope.crashes.as107_element_count import target
from attnscope.crashes.scene import Scene
from attnscope.crashes.suspects import defined, unique
from attnscope.crashes.values import UNKNOWN, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS108"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError):
        return None
    worded = "view size is not compatible" in scene.words
    found = target(scene)
    if found is None or scene.op is None or scene.op.name != "view":
        return _bare(scene) if worded else None
    node, tensor = found[:2]
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
    made = defined(scene, node)
    if made is not None:
        labels.append(made)
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
        help=f"use `.reshape({arguments})` or `.contiguous().view({arguments})`",
    )


def _bare(scene: Scene) -> Diagnostic:
    return scene.finding(
        CODE,
        "`view` cannot merge axes here: the memory is not contiguous",
        notes=[scene.words],
        help="use `.reshape(…)` or `.contiguous().view(…)`",
    )
