"""AS117: tensors of different dtypes meet in one operation.

Products, linear layers and attention do not convert: their operands must have one dtype. In a half-precision
module a table of float32 (rotary angles, a mask, a scale) turns what it touches into float32.

It is bad because it only shows in half precision, that is, after the code worked in float32.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            wide = x.double()
            return x @ wide.transpose(-2, -1)

Cure: cast the odd one back, `.to(x.dtype)`, right after it was made.

    - wide = x.double()
    + wide = x.double().to(x.dtype)
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.as111_matmul_sizes import PRODUCTS
from attnscope.crashes.history import Link
from attnscope.crashes.scene import Op, Scene, dtype_name
from attnscope.crashes.suspects import defined, unique
from attnscope.crashes.values import is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS117"
_STRICT = frozenset(PRODUCTS) | {
    "linear",
    "scaled_dot_product_attention",
    "einsum",
    "Linear",
    "conv1d",
    "lerp",
}


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | NotImplementedError | TypeError):
        return None
    unsupported = "not implemented for" in scene.words
    if is_module(op.callee):
        return _layer(scene, op)
    operands = [(n, v) for n, v in op.tensors if v.dim() > 0 or op.name not in _STRICT]
    if op.name == "scaled_dot_product_attention":
        given = [op.argument(i, name) for i, name in enumerate(("query", "key", "value"))]
        operands = [one for one in given if one is not None and is_tensor(one[1])]
    if op.name in _STRICT and len({v.dtype for _, v in operands}) > 1:
        return _differ(scene, operands)
    if unsupported and operands:
        return _unsupported(scene, op, operands)
    return None


def reference(scene: Scene) -> Any:
    """The dtype of the module's own floating parameters, or None."""
    owner = scene.owner
    stack = [owner] if owner is not None else []
    while stack:
        module = stack.pop()
        for value in (read(module, "_parameters") or {}).values():
            if is_tensor(value) and value.is_floating_point():
                return value.dtype
        stack += [child for child in (read(module, "_modules") or {}).values() if is_module(child)]
    return None


def _differ(scene: Scene, operands: list[tuple[ast.expr, Any]]) -> Diagnostic:
    kept = reference(scene)
    kinds = [v.dtype for _, v in operands]
    if kept is None or kept not in kinds:
        # Without a module's own dtype the odd one is the one whose dtype changed on its way.
        still = [v.dtype for n, v in operands if _change(scene, n, v) is None]
        kept = still[0] if still else max(kinds, key=kinds.count)
    wrong = [(n, v) for n, v in operands if v.dtype != kept]
    good = next((n for n, v in operands if v.dtype == kept), None)
    labels: list[Label] = []
    for node, value in wrong:
        changed = _change(scene, node, value)
        if changed is not None:
            labels.append(scene.label(changed[0], f"`{_name(scene, node)}` becomes {dtype_name(value)} here"))
    labels += [label for node, _ in wrong if (label := defined(scene, node)) is not None]
    shown = ", ".join(f"`{scene.text(n, 40)}` is {dtype_name(v)}" for n, v in operands)
    names = [_name(scene, node) for node, _ in wrong]
    target = f"{_name(scene, good)}.dtype" if good is not None else dtype_name(kept)
    cast = ", ".join(f"`{name}.to({target})`" for name in dict.fromkeys(names))
    return scene.finding(
        CODE,
        f"the dtypes differ: {shown}",
        label="needs one dtype",
        labels=unique(labels),
        help=f"cast back: {cast}",
    )


def _name(scene: Scene, node: ast.AST | None) -> str:
    """The variable at the root of an operand: `k` in `k.transpose(-2, -1)`."""
    current = node
    while isinstance(current, ast.Call | ast.Attribute | ast.Subscript):
        if (
            isinstance(current, ast.Attribute)
            and isinstance(current.value, ast.Name)
            and current.value.id == "self"
        ):
            break
        if isinstance(current, ast.Call):
            if not isinstance(current.func, ast.Attribute):
                break
            current = current.func.value
        else:
            current = current.value
    return scene.text(current if isinstance(current, ast.Name | ast.Attribute) else node, 40)


def _change(scene: Scene, node: ast.AST, value: Any) -> tuple[ast.AST, Any] | None:
    """The expression at which the dtype became what it is: (node, the dtype before)."""
    later: Link | None = None
    for link in scene.history(node):
        if is_tensor(link.before) and link.before.dtype != value.dtype:
            return link.node, link.before.dtype
        if is_tensor(link.value) and link.value.dtype != value.dtype:
            return (later or link).node, link.value.dtype
        later = link if link.kind != "argument" else later
    return None


def _layer(scene: Scene, op: Op) -> Diagnostic | None:
    weight = read(op.callee, "weight")
    kind = type(op.callee).__name__
    if kind == "MultiheadAttention":
        weight = read(op.callee, "in_proj_weight")
    given = op.inputs[0] if op.inputs else next(iter(op.keywords.values()), None)
    if given is None or not is_tensor(given[1]):
        return None
    node, value = given
    layer = scene.text(op.node.func) if isinstance(op.node, ast.Call) else kind
    labels: list[Label] = []
    changed = _change(scene, node, value)
    if changed is not None:
        labels.append(scene.label(changed[0], f"`{_name(scene, node)}` becomes {dtype_name(value)} here"))
    made = defined(scene, node)
    if made is not None:
        labels.append(made)
    if kind == "Embedding" and (value.is_floating_point() or dtype_name(value) == "bool"):
        return scene.finding(
            CODE,
            f"`{layer}` looks up ids, and `{scene.text(node, 40)}` is {dtype_name(value)}",
            label="needs int64 or int32",
            labels=unique(labels),
            help=f"give token ids: `{_name(scene, node)}.long()`, or skip the embedding for vectors",
        )
    if not is_tensor(weight) or kind == "Embedding" or weight.dtype == value.dtype:
        return None
    floating = value.is_floating_point()
    cure = f"cast what is given: `{scene.text(node, 40)}.to({layer}.weight.dtype)`"
    if not floating:
        cure = f"`{layer}` multiplies features: embed the ids first, or give `{scene.text(node, 40)}.float()`"
    return scene.finding(
        CODE,
        f"`{layer}` has weights of {dtype_name(weight)}, `{scene.text(node, 40)}` is {dtype_name(value)}",
        label=f"{dtype_name(value)} meets {dtype_name(weight)}",
        labels=unique(labels),
        help=cure,
    )


def _unsupported(scene: Scene, op: Op, operands: list[tuple[ast.expr, Any]]) -> Diagnostic:
    node, value = operands[0]
    labels = [label for label in [defined(scene, node)] if label is not None]
    changed = _change(scene, node, value)
    if changed is not None:
        labels.insert(0, scene.label(changed[0], f"`{_name(scene, node)}` becomes {dtype_name(value)} here"))
    return scene.finding(
        CODE,
        f"`{op.name}` does not work on {dtype_name(value)}",
        label=f"`{scene.text(node, 40)}` is {dtype_name(value)}",
        labels=unique(labels),
        notes=[scene.words],
        help=f"convert it first: `{_name(scene, node)}.float()`",
    )
