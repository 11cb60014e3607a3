"""AS118: a mask has a dtype that the operation does not take.

`~` turns booleans round, not floats. `masked_fill` and `where` take booleans. The `attn_mask` of
`F.scaled_dot_product_attention` is boolean, or a float mask of the query's own dtype.

It is bad because a mask of ones and zeros looks the same in every dtype when it is printed.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(6, 6).tril())

        def forward(self, x):
            scores = x @ x.transpose(-2, -1)
            return scores.masked_fill(~self.mask, float("-inf"))

Cure: make the mask boolean where it is registered (`.bool()`), or compare: `self.mask == 0`.

    - self.register_buffer("mask", torch.ones(6, 6).tril())
    + self.register_buffer("mask", torch.ones(6, 6).tril().bool())
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.cause import cast_at, defined, unique
from attnscope.crashes.masks import looks_like_mask
from attnscope.crashes.scene import Op, Scene, dtype_name
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS118"
Said = tuple[ast.expr, Any, str, str]
"""(the operand, its twin, what is wrong, what mends it)"""


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | TypeError | IndexError):
        return None
    found = _arithmetic(scene, op) or _filled(scene, op) or _fused(scene, op) or _refused(scene, op)
    if found is None:
        return None
    node, value, message, cure = found
    kind = dtype_name(value)
    links, labels = scene.history(node), list[Label]()
    for link in links:
        if link.kind == "attribute":
            labels += scene.set_at(link.node, f"`{link.name}` is {{}} here as {kind}")
            break
    made = next((link.node for link in links if link.kind == "def"), None)
    if made is not None:
        labels.append(scene.label(cast_at(scene, node, value) or made, f"it becomes {kind} here"))
    labels += defined(scene, node)
    return scene.finding(CODE, message, label=f"this is {kind}", labels=unique(labels), help=cure)


def _arithmetic(scene: Scene, op: Op) -> Said | None:
    for node, value in op.tensors:
        said, text, kind = scene.quote(node), scene.text(node), dtype_name(value)
        inexact = value.is_floating_point() or value.is_complex()
        if op.name in ("invert", "bitwise_not") and inexact:
            cure = f"make it boolean where it is made, `.bool()`, or write `{text} == 0`"
            return node, value, f"`~` turns booleans round, and {said} is {kind}", cure
        if op.name in ("and", "or", "xor", "bitwise_and", "bitwise_or") and value.is_floating_point():
            cure = f"make it boolean: `{text}.bool()`"
            return node, value, f"`&` and `|` join booleans, and {said} is {kind}", cure
        if op.name in ("sub", "neg", "rsub") and "bool" in scene.words and kind == "bool":
            cure = f"turn it round with `~{text}`, or make numbers of it: `{text}.float()`"
            return node, value, f"`-` does not work on booleans, and {said} is bool", cure
    return None


def _filled(scene: Scene, op: Op) -> Said | None:
    if op.name not in ("masked_fill", "masked_fill_", "where") or not op.inputs:
        return None
    method = isinstance(op.words, ast.Attribute) and is_tensor(scene.value(op.words.value))
    place = (1 if method and len(op.inputs) == 3 else 0) if op.name == "where" else 1
    mask = op.argument(place, "mask" if op.name != "where" else "condition")
    if mask is None or not is_tensor(mask[1]) or dtype_name(mask[1]) == "bool":
        return None
    node, value = mask
    message = f"`{op.name}` takes a boolean mask, and {scene.quote(node)} is {dtype_name(value)}"
    text = scene.text(node)
    return node, value, message, f"give a boolean: `{text} == 0` where 0 means masked, or `{text}.bool()`"


def _fused(scene: Scene, op: Op) -> Said | None:
    query, mask = op.argument(0, "query"), op.argument(3, "attn_mask")
    if op.name != "scaled_dot_product_attention" or query is None or mask is None:
        return None
    if not is_tensor(mask[1]) or not is_tensor(query[1]):
        return None
    (node, value), wanted = mask, dtype_name(query[1])
    kind = dtype_name(value)
    if kind in ("bool", wanted) or ("dtype" not in scene.words and kind == "float32"):
        return None
    message = f"the mask {scene.quote(node)} is {kind}, the query {scene.quote(query[0])} {wanted}"
    cure = f"make it with `dtype={scene.text(query[0])}.dtype`, or give a boolean mask (True = may attend)"
    return node, value, message, cure


def _refused(scene: Scene, op: Op) -> Said | None:
    if not isinstance(scene.error, RuntimeError) or "dtype" not in scene.words or "mask" not in scene.words:
        return None
    for node, value in op.tensors if op.name != "scaled_dot_product_attention" else ():
        if looks_like_mask(scene, node, value):
            message = f"the mask {scene.quote(node)} has the dtype {dtype_name(value)}"
            cure = "give a boolean mask, or a float mask of the input's dtype"
            return node, value, f"{message}, which is not taken here", cure
    return None
