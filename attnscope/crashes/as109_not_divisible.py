"""AS109: a size does not divide by the number of parts.

The channels are to be cut into heads of equal width, and the width does not divide by their number (or the
query heads do not divide by the key heads).

It is bad because `//` rounds down silently: the sizes then differ by a few elements somewhere else.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            b, t, c = x.shape
            heads = 3
            return x.view(b, t, heads, c // heads)

Cure: choose a width that is a multiple of the number of heads.

    - heads = 3
    + heads = 4
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.as107_element_count import target
from attnscope.crashes.scene import Scene
from attnscope.crashes.suspects import lengths, trail
from attnscope.crashes.syntax import guards
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS109"


def diagnose(scene: Scene) -> Diagnostic | None:
    return _stated(scene) or _viewed(scene) or _layer(scene)


def _report(
    scene: Scene, size: int, parts: int, size_text: str, parts_text: str, labels: list[Label], label: str = ""
) -> Diagnostic:
    shown_size = f"`{size_text}` {size}" if size_text else str(size)
    shown_parts = f"`{parts_text}` {parts}" if parts_text else str(parts)
    lower = size // parts * parts
    return scene.finding(
        CODE,
        f"{shown_size} does not divide by {shown_parts}",
        label=label or f"{size} / {parts} leaves {size % parts}",
        labels=labels,
        help=f"choose a multiple of {parts} in place of {size} ({lower or parts} or {lower + parts}), "
        f"or a divisor of {size} in place of {parts}",
    )


def _stated(scene: Scene) -> Diagnostic | None:
    """An `assert a % b == 0`, or a `raise` under `if a % b`."""
    if scene.shot is None or scene.shot.source is None:
        return None
    statement = scene.shot.statement
    test: ast.AST | None = None
    if isinstance(statement, ast.Assert):
        test = statement.test
    elif isinstance(statement, ast.Raise):
        around = guards(scene.shot.source, statement)
        test = around[0].test if around and isinstance(around[0], ast.If) else None
    if test is None:
        return None
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            size, parts = scene.value(node.left), scene.value(node.right)
            if type(size) is int and type(parts) is int and parts > 0 and size % parts:
                labels = [scene.label(node, f"{size} % {parts} is {size % parts}")]
                return _report(scene, size, parts, scene.text(node.left), scene.text(node.right), labels)
    for node in ast.walk(test):
        # `assert head_dim * heads == width`, where the one factor was made with `//`
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            for product, whole in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
                if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                    a, b, c = (scene.value(one) for one in (product.left, product.right, whole))
                    if all(type(one) is int and one > 0 for one in (a, b, c)) and a * b != c:
                        parts, text = (b, product.right) if c // b == a else (a, product.left)
                        if c % parts and c // parts in (a, b):
                            return _report(scene, c, parts, scene.text(whole), scene.text(text), [])
    return None


def _viewed(scene: Scene) -> Diagnostic | None:
    """`view(B, T, H, C // H)` where C does not divide by H."""
    if not isinstance(scene.error, RuntimeError | ValueError):
        return None
    op = scene.op
    if op is not None and op.name == "unflatten" and op.inputs and is_tensor(op.inputs[0][1]):
        return _unflattened(scene)
    found = target(scene)
    if found is None:
        return None
    node, tensor, nodes, wanted = found
    ints = [(one, size) for one, size in zip(nodes, wanted, strict=True) if type(size) is int and size > 0]
    if tensor.dim() == 0:
        return None
    last = int(tensor.shape[-1])
    given = [int(n) for n in tensor.shape[:-1]]
    for size in given:  # the leading axes, B and T, stay as they are
        if not ints or ints[0][1] != size:
            break
        ints = ints[1:]
    way = trail(scene, node)
    tokens = lengths(scene)
    for parts_node, parts in ints:
        if parts in tokens:
            continue
        for other_node, other in ints:
            if (
                parts_node is other_node
                or parts <= 1
                or other <= 1
                or last % parts == 0
                or last // parts != other
            ):
                continue
            labels = list(way)
            if isinstance(other_node, ast.Attribute):
                setting = scene.setting(other_node.attr)
                if setting is not None:
                    labels.append(scene.label(setting.target, f"`{other_node.attr}` {other} is set here"))
            return _report(
                scene, last, parts, "", scene.text(parts_node), labels,
                f"{last} elements of each token cannot be {parts} × {other} = {parts * other}",
            )  # fmt: skip
    if -1 in wanted and len(ints) == 1 and len(wanted) == tensor.dim() + 1:
        parts_node, parts = ints[0]
        if last % parts:
            return _report(scene, last, parts, "", scene.text(parts_node), way)
    return None


def _unflattened(scene: Scene) -> Diagnostic | None:
    assert scene.op is not None
    tensor = scene.op.inputs[0][1]
    axis, sizes = scene.op.argument(1, "dim"), scene.op.argument(2, "sizes")
    if axis is None or sizes is None or type(axis[1]) is not int or not isinstance(sizes[1], tuple | list):
        return None
    if not -tensor.dim() <= axis[1] < tensor.dim():
        return None
    known = [size for size in sizes[1] if type(size) is int and size > 0]
    whole = int(tensor.shape[axis[1]])
    parts = 1
    for size in known:
        parts *= size
    if not known or whole % parts == 0:
        return None
    way = trail(scene, scene.op.inputs[0][0])
    return _report(scene, whole, parts, "", scene.text(sizes[0]) if len(known) > 1 else "", way)


def _layer(scene: Scene) -> Diagnostic | None:
    """`nn.MultiheadAttention(30, 4)`."""
    op = scene.op
    if op is None or getattr(op.callee, "__name__", "") != "MultiheadAttention":
        return None
    if not isinstance(scene.error, AssertionError | ValueError):
        return None
    width, heads = op.argument(0, "embed_dim"), op.argument(1, "num_heads")
    if width is None or heads is None:
        return None
    size: Any = width[1]
    parts: Any = heads[1]
    if type(size) is int and type(parts) is int and parts > 0 and size % parts:
        return _report(scene, size, parts, scene.text(width[0]), scene.text(heads[0]), [])
    return None
