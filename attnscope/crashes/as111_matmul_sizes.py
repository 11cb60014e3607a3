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
from typing import Any

from attnscope.crashes.scene import Op, Scene
from attnscope.crashes.suspects import REPEATS, broadcastable, lengths, misfits, mismatch
from attnscope.crashes.values import is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic

CODE = "AS111"
PRODUCTS = ("matmul", "bmm", "mm", "baddbmm", "addmm", "dot", "mv")


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | AssertionError):
        return None
    if op.name == "scaled_dot_product_attention":
        return _attention(scene, op)
    if is_module(op.callee) and type(op.callee).__name__ == "MultiheadAttention":
        return _multihead(scene, op)
    if op.name not in PRODUCTS:
        return None
    pair = [(node, value) for node, value in op.inputs if is_tensor(value)][-2:]
    if len(pair) < 2:
        return None
    (left_node, left), (right_node, right) = pair
    reason = misfit(left, right)
    if reason is None:
        return None
    return scene.finding(
        CODE,
        f"{_brief(scene, left_node, left)} and "
        f"{_brief(scene, right_node, right)} cannot be multiplied: {reason}",
        label=reason,
        labels=misfits(scene, pair),
        help=_cure(scene, left_node, left, right_node, right),
    )


def _brief(scene: Scene, node: ast.AST, value: Any) -> str:
    return f"`{scene.text(node, 40)}` {scene.shape(value, node)}"


def misfit(left: Any, right: Any) -> str | None:
    """Why `left @ right` cannot be, or None."""
    if left.dim() == 0 or right.dim() == 0:
        return "a number alone is no matrix"
    inner = int(right.shape[-2]) if right.dim() > 1 else int(right.shape[-1])
    if int(left.shape[-1]) != inner:
        return f"{int(left.shape[-1])} columns meet {inner} rows"
    axis = mismatch(left.shape[:-2], right.shape[:-2])
    if axis is not None:
        a, b = int(left.shape[axis - 2]), int(right.shape[axis - 2])
        return f"{a} and {b} matrices on axis {axis - 2}"
    return None


def _cure(scene: Scene, left_node: ast.AST, left: Any, right_node: ast.AST, right: Any) -> str:
    """The first swap of axes of one factor after which the product is possible with equal leading axes."""
    if _is_weights(scene, left_node) and left.dim() > 1 and right.dim() > 1:
        keys, values = int(left.shape[-1]), int(right.shape[-2])
        for text, value in _swaps(scene, right_node, right)[1:]:
            if misfit(left, value) is None and left.shape[:-2] == value.shape[:-2]:
                return f"multiply with {text}"
        if keys != values:
            return (
                f"the weights have {keys} keys and `{scene.text(right_node, 40)}` {values} rows: "
                "make k and v from the same tokens, and lay them out alike"
            )
    trials: list[tuple[str, Any, Any]] = []
    base_node, base = _untransposed(scene, right_node, right)
    if base is not None:
        trials += [(text, left, value) for text, value in _swaps(scene, base_node, base)]
        trials.append((f"`{scene.text(base_node)}` as it is", left, base))
    trials += [(text, left, value) for text, value in _swaps(scene, right_node, right)]
    base_node, base = _untransposed(scene, left_node, left)
    if base is not None:
        trials += [(text, value, right) for text, value in _swaps(scene, base_node, base)]
        trials.append((f"`{scene.text(base_node)}` as it is", base, right))
    trials += [(text, value, right) for text, value in _swaps(scene, left_node, left)]
    for text, a, b in trials:
        if misfit(a, b) is None and a.shape[:-2] == b.shape[:-2]:
            return f"multiply with {text}"
    repeated = _repeat(scene, left_node, left, right_node, right)
    if repeated:
        return repeated
    if left.dim() == 4 and right.dim() == 3:
        text = scene.text(right_node, 40)
        return f"cut `{text}` into heads as well: it has 3 axes, `{scene.text(left_node, 40)}` has 4"
    reason = misfit(left, right) or ""
    if "columns" in reason:
        return (
            f"the last axis of `{scene.text(left_node, 40)}` "
            f"({int(left.shape[-1])}) must be as long as the last but "
            f"one of `{scene.text(right_node, 40)}` "
            f"({int(right.shape[-2]) if right.dim() > 1 else int(right.shape[-1])})"
        )
    return "give both factors the same leading axes (batch and heads)"


def _is_weights(scene: Scene, node: ast.AST) -> bool:
    """Whether an operand came out of a softmax with no product after it."""
    for link in scene.history(node):
        if link.kind == "op" and link.name in PRODUCTS:
            return False
        if link.kind == "op" and link.name in ("softmax", "Softmax"):
            return True
    return False


def _swaps(scene: Scene, node: ast.AST, value: Any) -> list[tuple[str, Any]]:
    text = scene.text(node, 60)
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.Compare):
        text = f"({text})"
    found = []
    if value.dim() >= 2:
        found.append((f"`{text}.transpose(-2, -1)`", value.transpose(-2, -1)))
    if value.dim() == 4:
        found.append((f"`{text}.transpose(1, 2)`", value.transpose(1, 2)))
        found.append((f"`{text}.permute(0, 2, 3, 1)`", value.permute(0, 2, 3, 1)))
    if value.dim() == 3:
        found.append((f"`{text}.transpose(0, 1)`", value.transpose(0, 1)))
    return found


def _untransposed(scene: Scene, node: ast.AST, value: Any) -> tuple[ast.AST, Any]:
    """The operand without the transpose or permute with which it is written."""
    links = scene.history(node)
    if (
        links
        and links[0].kind == "op"
        and links[0].name in ("transpose", "permute", "T", "mT", "t", "swapaxes")
    ):
        inner = links[0].node
        base = (
            inner.func.value
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)
            else None
        )
        if isinstance(inner, ast.Attribute):
            base = inner.value
        if base is not None and is_tensor(links[0].before):
            return base, links[0].before
    return node, None


def _repeat(scene: Scene, left_node: ast.AST, left: Any, right_node: ast.AST, right: Any) -> str:
    """Heads that were repeated along another axis, or not at all."""
    for node in (left_node, right_node):
        for link in scene.history(node):
            if (
                link.kind == "op"
                and link.name in REPEATS
                and is_tensor(link.before)
                and is_tensor(link.value)
            ):
                before, after = link.before.shape, link.value.shape
                if len(before) == len(after) == 4:
                    grown = [i for i in range(4) if before[i] != after[i] and before[i] != 1]
                    heads = [i for i in (1, 2) if i not in grown]
                    tokens = lengths(scene)
                    if grown and grown[0] in (1, 2) and heads and int(before[grown[0]]) in tokens:
                        return (
                            f"repeat along axis {heads[0]} (heads, "
                            f"{int(before[heads[0]])}), not axis {grown[0]} "
                            f"({int(before[grown[0]])} → {int(after[grown[0]])})"
                        )
    if left.dim() == right.dim() == 4:
        a, b = int(left.shape[1]), int(right.shape[1])
        few, many, node = (a, b, left_node) if a < b else (b, a, right_node)
        if few and few != many and many % few == 0 and left.shape[0] == right.shape[0]:
            base = _untransposed(scene, node, left if node is left_node else right)
            text = scene.text(base[0] if base[1] is not None and int(base[1].shape[1]) == few else node, 40)
            return f"repeat the heads first: `{text}.repeat_interleave({many // few}, dim=1)`"
    return ""


def _attention(scene: Scene, op: Op) -> Diagnostic | None:
    given = [op.argument(i, name) for i, name in enumerate(("query", "key", "value"))]
    operands = [one for one in given if one is not None and is_tensor(one[1])]
    if len(operands) < 3:
        return None
    (qn, q), (kn, k), (vn, v) = operands
    if min(q.dim(), k.dim(), v.dim()) < 2:
        return None
    gqa = op.keywords.get("enable_gqa", (None, False))[1]
    lead = [t.shape[: -3 if gqa else -2] for t in (q, k, v)]
    names = [f"`{scene.text(n, 40)}`" for n in (qn, kn, vn)]
    if int(q.shape[-1]) != int(k.shape[-1]):
        reason = f"{names[0]} has width {int(q.shape[-1])}, {names[1]} {int(k.shape[-1])}"
        cure = "project q and k to the same head width, and transpose them alike"
    elif int(k.shape[-2]) != int(v.shape[-2]):
        reason = f"{names[1]} has {int(k.shape[-2])} keys, {names[2]} {int(v.shape[-2])} values"
        cure = "make k and v from the same tokens, and transpose them alike"
    elif not broadcastable(*lead):
        axis = mismatch(*lead) or -1
        found = [str(int(one[axis])) if len(one) >= -axis else "none" for one in lead]
        reason = f"q, k and v have {', '.join(found)} on axis {axis - 2}"
        cure = _repeat(scene, qn, q, kn, k) or "give q, k and v the same batch and heads"
    else:
        return None
    shown = ", ".join(_brief(scene, n, t) for n, t in operands)
    return scene.finding(
        CODE,
        f"q, k and v do not fit each other: {reason}",
        label="called here",
        labels=misfits(scene, operands),
        notes=[shown],
        help=cure,
    )


def _multihead(scene: Scene, op: Op) -> Diagnostic | None:
    """`nn.MultiheadAttention` with a key and a value of different lengths, or another batch."""
    given = [op.argument(i, name) for i, name in enumerate(("query", "key", "value"))]
    operands = [one for one in given if one is not None and is_tensor(one[1])]
    if len(operands) < 3 or any(value.dim() != 3 for _, value in operands):
        return None
    (_, q), (kn, k), (vn, v) = operands
    batch = 0 if read(op.callee, "batch_first") else 1
    layout = "[B, T, C]" if batch == 0 else "[T, B, C]"
    if tuple(k.shape[:2]) != tuple(v.shape[:2]):
        reason = f"{_brief(scene, kn, k)} and {_brief(scene, vn, v)} differ"
        cure = "give the key and the value from the same sequence"
    elif int(q.shape[batch]) != int(k.shape[batch]):
        reason = f"the query has {int(q.shape[batch])} on the batch's axis, the key {int(k.shape[batch])}"
        cure = f"give all three as {layout}, which `batch_first={batch == 0}` asks for"
    else:
        return None
    return scene.finding(
        CODE,
        f"query, key and value do not fit each other: {reason}",
        label="called here",
        labels=misfits(scene, operands),
        notes=[", ".join(_brief(scene, n, t) for n, t in operands)],
        help=cure,
    )
