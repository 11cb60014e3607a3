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

from torch import nn

from attnscope.crashes.cause import cast_at, defined, unique
from attnscope.crashes.scene import Op, Scene, dtype_name
from attnscope.crashes.values import is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label
from attnscope.ops.catalog import MATMULS

CODE = "AS117"
_STRICT = MATMULS | frozenset("dot mv linear scaled_dot_product_attention einsum Linear conv1d lerp".split())
Operand = tuple[ast.expr, Any]


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | NotImplementedError | TypeError):
        return None
    if is_module(op.callee):
        return _layer(scene, op)
    operands = [(n, v) for n, v in op.tensors if v.dim() > 0 or op.name not in _STRICT]
    if op.name == "scaled_dot_product_attention":
        given = [op.argument(i, name) for i, name in enumerate(("query", "key", "value"))]
        operands = [one for one in given if one is not None and is_tensor(one[1])]
    if op.name in _STRICT and len({v.dtype for _, v in operands}) > 1:
        return _differ(scene, operands)
    if "not implemented for" not in scene.words or not operands:
        return None
    node, value = operands[0]
    return scene.finding(
        CODE,
        f"`{op.name}` does not work on {dtype_name(value)}",
        label=f"`{scene.text(node, 40)}` is {dtype_name(value)}",
        labels=_became(scene, node, value),
        notes=[scene.words],
        help=f"convert it first: `{_name(scene, node)}.float()`",
    )


def _became(scene: Scene, *operand: Any) -> list[Label]:
    """Where an operand got its dtype, and where it was made."""
    node, value = operand
    changed = cast_at(scene, node, value)
    text = f"`{_name(scene, node)}` becomes {dtype_name(value)} here"
    return unique([*([scene.label(changed, text)] if changed is not None else []), *defined(scene, node)])


def _reference(scene: Scene) -> Any:
    """The dtype of the module's own floating parameters, or None."""
    for module in scene.below(scene.owner):
        for value in (read(module, "_parameters") or {}).values():
            if is_tensor(value) and value.is_floating_point():
                return value.dtype
    return None


def _differ(scene: Scene, operands: list[Operand]) -> Diagnostic:
    kept, kinds = _reference(scene), [v.dtype for _, v in operands]
    if kept not in kinds:
        # Without a module's own dtype the odd one is the one whose dtype changed on its way.
        still = [v.dtype for n, v in operands if cast_at(scene, n, v) is None]
        kept = still[0] if still else max(kinds, key=kinds.count)
    wrong = [(n, v) for n, v in operands if v.dtype != kept]
    labels = [_became(scene, *one) for one in wrong]
    shown = ", ".join(f"`{scene.text(n, 40)}` is {dtype_name(v)}" for n, v in operands)
    target = next((f"{_name(scene, n)}.dtype" for n, v in operands if v.dtype == kept), dtype_name(kept))
    cast = ", ".join(dict.fromkeys(f"`{_name(scene, node)}.to({target})`" for node, _ in wrong))
    ordered = [label for row in labels for label in row if " becomes " in label.text]
    return scene.finding(
        CODE,
        f"the dtypes differ: {shown}",
        label="needs one dtype",
        labels=unique([*ordered, *(label for row in labels for label in row)]),
        help=f"cast back: {cast}",
    )


def _name(scene: Scene, node: ast.AST) -> str:
    """The variable at the root of an operand: `k` in `k.transpose(-2, -1)`."""
    current = node
    while isinstance(current, ast.Call | ast.Attribute | ast.Subscript):
        inner = current.func if isinstance(current, ast.Call) else current
        if not isinstance(inner, ast.Attribute | ast.Subscript):
            break
        if isinstance(current, ast.Attribute) and scene.text(current.value) == "self":
            break
        current = inner.value
    return scene.text(current if isinstance(current, ast.Name | ast.Attribute) else node, 40)


def _layer(scene: Scene, op: Op) -> Diagnostic | None:
    if op.given is None or not is_tensor(op.given[1]):
        return None
    node, value = op.given
    fused = isinstance(op.callee, nn.MultiheadAttention)
    weight = read(op.callee, "in_proj_weight" if fused else "weight")
    layer = scene.text(op.words) if op.words is not None else type(op.callee).__name__
    text, labels = scene.text(node, 40), _became(scene, node, value)
    floating = value.is_floating_point()
    if isinstance(op.callee, nn.Embedding):
        if not floating and dtype_name(value) != "bool":
            return None
        return scene.finding(
            CODE,
            f"`{layer}` looks up ids, and `{text}` is {dtype_name(value)}",
            label="needs int64 or int32",
            labels=labels,
            help=f"give token ids: `{_name(scene, node)}.long()`, or skip the embedding for vectors",
        )
    if not is_tensor(weight) or weight.dtype == value.dtype:
        return None
    return scene.finding(
        CODE,
        f"`{layer}` has weights of {dtype_name(weight)}, `{text}` is {dtype_name(value)}",
        label=f"{dtype_name(value)} meets {dtype_name(weight)}",
        labels=labels,
        help=f"cast what is given: `{text}.to({layer}.weight.dtype)`"
        if floating
        else f"`{layer}` multiplies features: embed the ids first, or give `{text}.float()`",
    )
