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
import math
from typing import Any

from torch import nn

from attnscope.crashes.cause import lengths, trail
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS109"


def diagnose(scene: Scene) -> Diagnostic | None:
    return _stated(scene) or _unflattened(scene) or _viewed(scene) or _layer(scene)


def _report(
    scene: Scene, size: Any, parts: Any, size_text: str, parts_text: str, labels: list[Label], label: str = ""
) -> Diagnostic | None:
    if type(size) is not int or type(parts) is not int or parts <= 0 or size % parts == 0:
        return None
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
    """An `assert a % b == 0`, a `raise` under `if a % b`, or `head_dim * heads == width` made with `//`."""
    nodes = list(ast.walk(scene.condition)) if scene.condition is not None else []
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            size, parts = scene.value(node.left), scene.value(node.right)
            if type(size) is int and type(parts) is int and parts > 0 and size % parts:
                labels = [scene.label(node, f"{size} % {parts} is {size % parts}")]
                return _report(scene, size, parts, scene.text(node.left), scene.text(node.right), labels)
    for node in nodes:
        sides = [node.left, node.comparators[0]] if isinstance(node, ast.Compare) else []
        for product, whole in (sides, sides[::-1]) if len(sides) == 2 else ():
            if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                a, b, c = (scene.value(one) for one in (product.left, product.right, whole))
                if all(type(one) is int and one > 0 for one in (a, b, c)) and a * b != c:
                    parts, text = (b, product.right) if c // b == a else (a, product.left)
                    if c // parts in (a, b):
                        return _report(scene, c, parts, scene.text(whole), scene.text(text), [])
    return None


def _viewed(scene: Scene) -> Diagnostic | None:
    """`view(B, T, H, C // H)` where C does not divide by H."""
    op = scene.op
    asked = op.asked() if op is not None and op.name in ("view", "reshape") else None
    if asked is None or not isinstance(scene.error, RuntimeError | ValueError) or asked[1].dim() == 0:
        return None
    node, tensor, nodes, wanted = asked
    ints = [(one, size) for one, size in zip(nodes, wanted, strict=True) if type(size) is int and size > 0]
    last, way = int(tensor.shape[-1]), trail(scene, node)
    for size in tensor.shape[:-1]:  # the leading axes, B and T, stay as they are
        if not ints or ints[0][1] != int(size):
            break
        ints = ints[1:]
    for parts_node, parts in ints:
        if parts in lengths(scene) or parts <= 1:
            continue
        for other_node, other in ints:
            if parts_node is not other_node and other > 1 and last % parts and last // parts == other:
                words = scene.text(other_node)
                return _report(
                    scene, last, parts, "", scene.text(parts_node),
                    [*way, *scene.set_at(other_node, f"`{words.split('.')[-1]}` {other} is set here")],
                    f"{last} elements of each token cannot be {parts} × {other} = {parts * other}",
                )  # fmt: skip
    if -1 in wanted and len(ints) == 1 and len(wanted) == tensor.dim() + 1:
        return _report(scene, last, ints[0][1], "", scene.text(ints[0][0]), way)
    return None


def _unflattened(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or op.name != "unflatten" or not op.inputs or not is_tensor(op.inputs[0][1]):
        return None
    tensor, axis, sizes = op.inputs[0][1], op.argument(1, "dim"), op.argument(2, "sizes")
    if axis is None or sizes is None or type(axis[1]) is not int or not isinstance(sizes[1], tuple | list):
        return None
    known = [size for size in sizes[1] if type(size) is int and size > 0]
    if not known or not -tensor.dim() <= axis[1] < tensor.dim():
        return None
    text = scene.text(sizes[0]) if len(known) > 1 else ""
    whole = int(tensor.shape[axis[1]])
    return _report(scene, whole, math.prod(known), "", text, trail(scene, op.inputs[0][0]))


def _layer(scene: Scene) -> Diagnostic | None:
    """`nn.MultiheadAttention(30, 4)`."""
    op = scene.op
    of_torch = op is not None and isinstance(op.callee, type) and issubclass(op.callee, nn.MultiheadAttention)
    if op is None or not of_torch or not isinstance(scene.error, AssertionError | ValueError):
        return None
    width, heads = op.argument(0, "embed_dim"), op.argument(1, "num_heads")
    if width is None or heads is None:
        return None
    return _report(scene, width[1], heads[1], scene.text(width[0]), scene.text(heads[0]), [])
