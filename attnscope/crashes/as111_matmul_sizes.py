"""AS111: the factors of a matrix product do not fit.

In `a @ b` the last axis of `a` must be as long as the last but one of `b`, and the axes before must agree.
The same holds inside `F.scaled_dot_product_attention`: q and k need the same width, k and v the same length,
all three the same batch and heads.

It is bad because one wrong transpose can also fit by chance and multiply the wrong axes.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            q, k = x, x
            return q @ k

Cure: transpose the axis that is meant: `q @ k.transpose(-2, -1)`.

    - return q @ k
    + return q @ k.transpose(-2, -1)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from torch import nn

from attnscope.crashes.cause import REPEATS, causes, mismatch, tokens_changed
from attnscope.crashes.repairs import forms, untransposed
from attnscope.crashes.scene import Op, Scene
from attnscope.crashes.values import is_tensor, read
from attnscope.diagnostic import Diagnostic
from attnscope.ops.catalog import MATMULS, SOFTMAXES

CODE = "AS111"
Operand = tuple[ast.expr, Any]


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | AssertionError):
        return None
    fused = op.name == "scaled_dot_product_attention"
    if fused or isinstance(op.callee, nn.MultiheadAttention):
        given = [op.argument(i, name) for i, name in enumerate(("query", "key", "value"))]
        operands = [one for one in given if one is not None and is_tensor(one[1])]
        judge: Callable[..., tuple[str, str] | None] = _attention if fused else _multihead
        found = judge(scene, op, *operands) if len(operands) == 3 else None
        if found is None:
            return None
        return scene.finding(
            CODE,
            f"{'q, k and v' if fused else 'query, key and value'} do not fit each other: {found[0]}",
            label="called here",
            labels=causes(scene, operands),
            notes=[", ".join(_brief(scene, *one) for one in operands)],
            help=found[1],
        )
    factors = [one for one in op.inputs if is_tensor(one[1])][-2:]
    if op.name not in MATMULS | {"dot", "mv"} or len(factors) < 2:
        return None
    left, right = factors
    reason = _misfit(left[1], right[1])
    if reason is None:
        return None
    return scene.finding(
        CODE,
        f"{_brief(scene, *left)} and {_brief(scene, *right)} cannot be multiplied: {reason}",
        label=reason,
        labels=causes(scene, factors),
        help=_cure(scene, left, right, reason),
    )


def _brief(scene: Scene, node: ast.AST, value: Any) -> str:
    return f"`{scene.text(node, 40)}` {scene.shape(value, node)}"


def _misfit(left: Any, right: Any) -> str | None:
    """Why `left @ right` cannot be, or None."""
    if left.dim() == 0 or right.dim() == 0:
        return "a number alone is no matrix"
    inner = int(right.shape[-2]) if right.dim() > 1 else int(right.shape[-1])
    if int(left.shape[-1]) != inner:
        return f"{int(left.shape[-1])} columns meet {inner} rows"
    axis = mismatch(left.shape[:-2], right.shape[:-2])
    if axis is None:
        return None
    return f"{int(left.shape[axis - 2])} and {int(right.shape[axis - 2])} matrices on axis {axis - 2}"


def _fit(left: Any, right: Any) -> bool:
    return _misfit(left, right) is None and left.shape[:-2] == right.shape[:-2]


def _cure(scene: Scene, left: Operand, right: Operand, reason: str) -> str:
    """The first swap of axes of one factor after which the product is possible with equal leading axes."""
    (left_node, a), (right_node, b) = left, right
    words = scene.text(left_node, 40), scene.text(right_node, 40)
    turned = list(forms(scene, right_node, b))
    if _is_weights(scene, left_node) and a.dim() > 1 and b.dim() > 1:
        keys, rows = int(a.shape[-1]), int(b.shape[-2])
        if keys != rows:
            own = [(text, value) for text, value in turned if ".transpose(-2, -1)" not in text]
            fits = [text for text, value in own if value.shape != b.shape and _fit(a, value)]
            return f"multiply with {fits[0]}" if fits else (
                f"the weights have {keys} keys and `{words[1]}` {rows} rows: "
                "make k and v from the same tokens, and lay them out alike"
            )  # fmt: skip
    fits = [text for text, value in turned if _fit(a, value)]
    fits += [text for text, value in forms(scene, left_node, a) if _fit(value, b)]
    if fits:
        return f"multiply with {fits[0]}"
    repeated = _repeat(scene, left, right)
    if repeated:
        return repeated
    if a.dim() == 4 and b.dim() == 3:
        return f"cut `{words[1]}` into heads as well: it has 3 axes, `{words[0]}` has 4"
    if "columns" in reason:
        rows = int(b.shape[-2] if b.dim() > 1 else b.shape[-1])
        return (
            f"the last axis of `{words[0]}` ({int(a.shape[-1])}) must be as long as the last but one of "
            f"`{words[1]}` ({rows})"
        )
    return "give both factors the same leading axes (batch and heads)"


def _is_weights(scene: Scene, node: ast.AST) -> bool:
    """Whether an operand came out of a softmax with no product after it."""
    names = [link.name for link in scene.history(node) if link.kind == "op"]
    first = next((name for name in names if name in MATMULS | SOFTMAXES | {"Softmax"}), "matmul")
    return first not in MATMULS


def _repeat(scene: Scene, left: Operand, right: Operand) -> str:
    """Heads that were repeated along another axis, or not at all."""
    for link in [*scene.history(left[0]), *scene.history(right[0])]:
        axis = tokens_changed(scene, link) if link.kind == "op" and link.name in REPEATS else None
        if axis in (1, 2):
            before, after, heads = link.before.shape, link.value.shape, 3 - axis
            return (
                f"repeat along axis {heads} (heads, {int(before[heads])}), not axis {axis} "
                f"({int(before[axis])} → {int(after[axis])})"
            )
    if left[1].dim() == right[1].dim() == 4 and left[1].shape[0] == right[1].shape[0]:
        (node, value), (_, other) = sorted((left, right), key=lambda one: int(one[1].shape[1]))
        few, many = int(value.shape[1]), int(other.shape[1])
        if few and few != many and many % few == 0:
            base, before = untransposed(scene, node)
            text = scene.text(base if before is not None and int(before.shape[1]) == few else node, 40)
            return f"repeat the heads first: `{text}.repeat_interleave({many // few}, dim=1)`"
    return ""


def _attention(scene: Scene, op: Op, query: Operand, key: Operand, value: Operand) -> tuple[str, str] | None:
    """(why, help) for `F.scaled_dot_product_attention`."""
    q, k, v = (one[1] for one in (query, key, value))
    if min(q.dim(), k.dim(), v.dim()) < 2:
        return None
    lead = [t.shape[: -3 if op.keywords.get("enable_gqa", (None, False))[1] else -2] for t in (q, k, v)]
    names = [f"`{scene.text(one[0], 40)}`" for one in (query, key, value)]
    axis = mismatch(*lead)
    if int(q.shape[-1]) != int(k.shape[-1]):
        return (
            f"{names[0]} has width {int(q.shape[-1])}, {names[1]} {int(k.shape[-1])}",
            "project q and k to the same head width, and transpose them alike",
        )
    if int(k.shape[-2]) != int(v.shape[-2]):
        return (
            f"{names[1]} has {int(k.shape[-2])} keys, {names[2]} {int(v.shape[-2])} values",
            "make k and v from the same tokens, and transpose them alike",
        )
    if axis is None:
        return None
    found = [str(int(one[axis])) if len(one) >= -axis else "none" for one in lead]
    cure = _repeat(scene, query, key) or _repeat(scene, query, value)
    return (
        f"q, k and v have {', '.join(found)} on axis {axis - 2}",
        cure or "give q, k and v the same batch and heads",
    )


def _multihead(scene: Scene, op: Op, query: Operand, key: Operand, value: Operand) -> tuple[str, str] | None:
    """(why, help) for `nn.MultiheadAttention` with a key and a value of other lengths, or another batch."""
    q, k, v = (one[1] for one in (query, key, value))
    if any(one.dim() != 3 for one in (q, k, v)):
        return None
    first = bool(read(op.callee, "batch_first"))
    batch, layout = (0, "[B, T, C]") if first else (1, "[T, B, C]")
    if tuple(k.shape[:2]) != tuple(v.shape[:2]):
        return (
            f"{_brief(scene, *key)} and {_brief(scene, *value)} differ",
            "give the key and the value from the same sequence",
        )
    if int(q.shape[batch]) == int(k.shape[batch]):
        return None
    return (
        f"the query has {int(q.shape[batch])} on the batch's axis, the key {int(k.shape[batch])}",
        f"give all three as {layout}, which `batch_first={first}` asks for",
    )
