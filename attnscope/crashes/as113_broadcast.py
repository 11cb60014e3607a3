"""AS113: two tensors do not broadcast against each other.

Element by element, axes are matched from the last one; each pair must be equal, or one of them 1.

It is bad because the wrong line is usually earlier: a transpose, a repeat, or a projection of the wrong
sequence gave one of the two a size that only shows here.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            y = x.transpose(1, 2)
            return x + y

Cure: give both the same layout (`x + y.transpose(1, 2)`), or insert the axis that is missing.

    - return x + y
    + return x + y.transpose(1, 2)
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.cause import causes, defined, lengths, mismatch, source, unique
from attnscope.crashes.repairs import AXES, SWAPS, broadcasts, fitting, grouped
from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.values import is_plain, is_tensor
from attnscope.diagnostic import Diagnostic, Label
from attnscope.ops.outcomes import ELEMENTWISE

CODE = "AS113"
Operand = tuple[ast.expr, Any]


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is not None and op.name in ("expand", "broadcast_to") and isinstance(scene.error, RuntimeError):
        return _expanded(scene, op)
    if op is None or op.name not in ELEMENTWISE or not isinstance(scene.error, RuntimeError):
        return _written(scene)
    operands = [one for one in op.inputs if is_tensor(one[1])]
    axis = mismatch(*(value.shape for _, value in operands))
    if len(operands) < 2 or axis is None:
        return None
    clash = [(n, v) for n, v in operands if v.dim() >= -axis and int(v.shape[axis]) != 1][:2]
    found = [int(value.shape[axis]) for _, value in clash]
    shown = " and ".join(f"`{scene.text(n, 40)}` {scene.shape(v, n)}" for n, v in clash)
    return scene.finding(
        CODE,
        f"{shown} do not broadcast: {found[0]} against {found[1]} on axis {axis}",
        label=f"{found[0]} against {found[1]} on axis {axis}",
        labels=unique([*_sources(scene, clash, axis), *causes(scene, clash)]),
        help=_cure(scene, clash, axis),
    )


def _sources(scene: Scene, clash: list[Operand], axis: int) -> list[Label]:
    """Where two lengths came from, if they are the lengths of two arguments."""
    if not {int(value.shape[axis]) for _, value in clash} <= lengths(scene):
        return []
    made = [(n, v) for n, v in clash if next((x.kind for x in scene.history(n)), "") != "argument"]
    found = [source(scene, node, int(value.shape[axis])) for node, value in made]
    return [one[0] for one in found if one is not None]


def _cure(scene: Scene, clash: list[Operand], axis: int) -> str:
    (left_node, left), (right_node, right) = clash
    if left.dim() == right.dim():
        for edit in fitting(right, lambda tensor: broadcasts(left.shape, tensor.shape), SWAPS):
            return f"{edit.why}: `{edit.words.format(grouped(scene, right_node, 40))}`"
    else:
        (node, small), (_, large) = sorted(clash, key=lambda one: one[1].dim())
        for edit in fitting(small, lambda tensor: broadcasts(tensor.shape, large.shape), AXES):
            return f"insert the missing axis: `{edit.words.format(grouped(scene, node, 40))}`"
    tokens = lengths(scene)
    for (node, value), (_, against) in (clash, clash[::-1]):
        size, other = int(value.shape[axis]), int(against.shape[axis])
        found = source(scene, node, size) if {size, other} <= tokens else None
        for name, given in scene.arguments if found is not None else ():
            if found is not None and name != found[2] and is_tensor(given) and other in given.shape[:-1]:
                return (
                    f"`{found[1]}` is made from `{found[2]}`, whose length is {size}; "
                    f"make it from `{name}`, whose length is {other}"
                )
    tables = [isinstance(node, ast.Attribute) and is_tensor(scene.value(node)) for node, _ in clash]
    if tables.count(True) == 1:
        (node, value), (_, against) = clash if tables[0] else clash[::-1]
        other, text = int(against.shape[axis]), scene.text(node, 40)
        if other in tokens and int(value.shape[axis]) > other:
            cut = ":, " * (value.dim() + axis) + f":{other}"
            square = axis == -2 and int(value.shape[-1]) == int(value.shape[-2]) != int(against.shape[-1])
            return (
                f"cut `{text}` to the text: `{text}[{cut}{f', :{int(against.shape[-1])}' if square else ''}]`"
            )
    return (
        f"make axis {axis} of `{scene.text(left_node, 40)}` and of `{scene.text(right_node, 40)}` equal, or 1"
    )


def _expanded(scene: Scene, op: Op) -> Diagnostic | None:
    """`expand` to sizes that an axis which is not 1 does not have."""
    found = op.asked()
    if found is None or not found[3] or any(type(size) is not int for size in found[3]):
        return None
    node, value, _, asked = found
    shape = [int(n) for n in value.shape]
    if len(asked) < len(shape):
        return None
    wrong = [i for i in range(1, len(shape) + 1) if asked[-i] not in (-1, shape[-i]) and shape[-i] != 1]
    if not wrong:
        return None
    axis = -wrong[0]
    return scene.finding(
        CODE,
        f"`{scene.text(node, 40)}` {sizes(shape)} cannot be expanded to {sizes(asked)}",
        label=f"axis {axis} is {shape[axis]}, not 1 and not {asked[axis]}",
        labels=causes(scene, [(node, value)]),
        help=f"ask for {shape[axis]} on axis {axis}, or expand an axis that is 1",
    )


def _written(scene: Scene) -> Diagnostic | None:
    """`cache[:, :T] = k` where the place and the value differ in shape."""
    node = scene.node
    statement = scene.shot.statement if scene.shot is not None else None
    if not (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)):
        return None
    if not isinstance(statement, ast.Assign) or not isinstance(scene.error, RuntimeError | IndexError):
        return None
    cache, index, value = scene.value(node.value), scene.value(node.slice), scene.value(statement.value)
    if not is_tensor(cache) or not is_plain(index) or not is_tensor(value):
        return None
    place = cache[index]
    if mismatch(place.shape, value.shape) is None:
        return None
    return scene.finding(
        CODE,
        f"`{scene.text(statement.value, 40)}` {sizes(value.shape)} "
        f"cannot be written to `{scene.text(node, 40)}` {sizes(place.shape)}",
        label=f"{sizes(place.shape)} is to take {sizes(value.shape)}",
        labels=[*defined(scene, statement.value), *defined(scene, node.value)],
        help="write a value of the same shape as the place, or choose the place by the value's own sizes",
    )
