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

from attnscope.crashes.as114_mask_shape import looks_like_mask
from attnscope.crashes.as117_dtypes_differ import _change
from attnscope.crashes.scene import Scene, dtype_name
from attnscope.crashes.suspects import defined, unique
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS118"


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | TypeError | IndexError):
        return None
    if op.name in ("invert", "bitwise_not") and op.inputs and is_tensor(op.inputs[0][1]):
        node, value = op.inputs[0]
        if value.is_floating_point() or value.is_complex():
            return _report(
                scene, node, value,
                f"`~` turns booleans round, and {scene.quote(node)} is {dtype_name(value)}",
                f"make it boolean where it is made, `.bool()`, or write `{scene.text(node)} == 0`",
            )  # fmt: skip
    if op.name in ("and", "or", "xor", "bitwise_and", "bitwise_or"):
        for node, value in op.tensors:
            if value.is_floating_point():
                return _report(
                    scene, node, value,
                    f"`&` and `|` join booleans, and {scene.quote(node)} is {dtype_name(value)}",
                    f"make it boolean: `{scene.text(node)}.bool()`",
                )  # fmt: skip
    if op.name in ("sub", "neg", "rsub") and "bool" in scene.words:
        for node, value in op.tensors:
            if dtype_name(value) == "bool":
                return _report(
                    scene, node, value,
                    f"`-` does not work on booleans, and {scene.quote(node)} is bool",
                    f"turn it round with `~{scene.text(node)}`, or "
                    f"make numbers of it: `{scene.text(node)}.float()`",
                )  # fmt: skip
    if op.name in ("masked_fill", "masked_fill_", "where") and op.inputs:
        index = 1 if op.name != "where" else 0
        if op.name == "where" and len(op.inputs) == 3 and _is_method(op.node, scene):
            index = 1
        mask = op.argument(index, "mask" if op.name != "where" else "condition")
        if mask is not None and is_tensor(mask[1]) and dtype_name(mask[1]) != "bool":
            node, value = mask
            return _report(
                scene, node, value,
                f"`{op.name}` takes a boolean mask, and {scene.quote(node)} is {dtype_name(value)}",
                f"give a boolean: `{scene.text(node)} == 0` where "
                f"0 means masked, or `{scene.text(node)}.bool()`",
            )  # fmt: skip
    if op.name == "scaled_dot_product_attention":
        query, mask = op.argument(0, "query"), op.argument(3, "attn_mask")
        if query is None or mask is None or not is_tensor(mask[1]) or not is_tensor(query[1]):
            return None
        node, value = mask
        kinds = {"bool", dtype_name(query[1])}
        if dtype_name(value) not in kinds and ("dtype" in scene.words or dtype_name(value) != "float32"):
            return _report(
                scene, node, value,
                f"the mask {scene.quote(node)} is {dtype_name(value)}, the query {scene.quote(query[0])} "
                f"{dtype_name(query[1])}",
                f"make it with `dtype={scene.text(query[0])}.dtype`, "
                f"or give a boolean mask (True = may attend)",
            )  # fmt: skip
    if isinstance(scene.error, RuntimeError) and "dtype" in scene.words and "mask" in scene.words:
        for node, value in op.tensors:
            if looks_like_mask(scene, node, value):
                return _report(
                    scene, node, value,
                    f"the mask {scene.quote(node)} has the dtype "
                    f"{dtype_name(value)}, which is not taken here",
                    "give a boolean mask, or a float mask of the input's dtype",
                )  # fmt: skip
    return None


def _is_method(node: ast.AST, scene: Scene) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and is_tensor(scene.value(node.func.value))
    )


def _report(scene: Scene, node: ast.AST, value: Any, message: str, cure: str) -> Diagnostic:
    labels: list[Label] = []
    links = scene.history(node)
    for link in links:
        if link.kind == "attribute":
            setting = scene.setting(link.name)
            if setting is not None:
                kept = "registered" if setting.registered else "set"
                labels.append(
                    scene.label(setting.target, f"`{link.name}` is {kept} here as {dtype_name(value)}")
                )
            break
    made = next((link for link in links if link.kind == "def"), None)
    if made is not None:
        changed = _change(scene, node, value)
        where = changed[0] if changed is not None else made.node
        labels.append(scene.label(where, f"it becomes {dtype_name(value)} here"))
    other = defined(scene, node)
    if other is not None:
        labels.append(other)
    return scene.finding(
        CODE, message, label=f"this is {dtype_name(value)}", labels=unique(labels), help=cure
    )
