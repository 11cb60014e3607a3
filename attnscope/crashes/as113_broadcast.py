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

from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.suspects import defined, lengths, misfits, mismatch, source, unique
from attnscope.crashes.values import is_plain, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS113"
ELEMENTWISE = frozenset(
    "add sub mul div pow and or xor compare floor_divide "
    "remainder true_divide multiply subtract divide where eq ne "
    "lt le gt ge maximum minimum masked_fill masked_fill_ "
    "add_ sub_ mul_ div_ addcmul lerp logical_and logical_or "
    "logical_xor bitwise_and bitwise_or atan2 binary copy_ expand_as broadcast_to complex polar".split()
)


def pair(op: Op) -> list[tuple[ast.expr, Any]]:
    return [(node, value) for node, value in op.inputs if is_tensor(value)]


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is not None and op.name in ("expand", "broadcast_to") and isinstance(scene.error, RuntimeError):
        return _expanded(scene, op)
    if op is None or op.name not in ELEMENTWISE or not isinstance(scene.error, RuntimeError):
        return _written(scene)
    operands = pair(op)
    axis = mismatch(*(value.shape for _, value in operands))
    if len(operands) < 2 or axis is None:
        return None
    clash = [(n, v) for n, v in operands if v.dim() >= -axis and int(v.shape[axis]) != 1][:2]
    found = [int(value.shape[axis]) for _, value in clash]
    shown = " and ".join(f"`{scene.text(n, 40)}` {scene.shape(v, n)}" for n, v in clash)
    labels = _sources(scene, clash, axis)
    return scene.finding(
        CODE,
        f"{shown} do not broadcast: {found[0]} against {found[1]} on axis {axis}",
        label=f"{found[0]} against {found[1]} on axis {axis}",
        labels=unique([*labels, *misfits(scene, clash)]),
        help=_cure(scene, clash, axis),
    )


def _sources(scene: Scene, clash: list[tuple[ast.expr, Any]], axis: int) -> list[Label]:
    """Where two lengths came from, if they are the lengths of two arguments."""
    labels: list[Label] = []
    if not {int(value.shape[axis]) for _, value in clash} <= lengths(scene):
        return labels
    for node, value in clash:
        found = None if _is_plain_argument(scene, node) else source(scene, node, int(value.shape[axis]))
        if found is not None:
            labels.append(found[0])
    return labels


def _is_plain_argument(scene: Scene, node: ast.AST) -> bool:
    links = scene.history(node)
    return bool(links) and links[0].kind == "argument"


def _cure(scene: Scene, clash: list[tuple[ast.expr, Any]], axis: int) -> str:
    (left_node, left), (right_node, right) = clash
    a, b = scene.text(left_node, 40), scene.text(right_node, 40)
    if left.dim() == right.dim():
        for i in range(right.dim()):
            for j in range(i + 1, right.dim()):
                if mismatch(left.shape, right.transpose(i, j).shape) is None:
                    return (
                        f"swap the axes {i} and {j} of one of them: "
                        f"`{_group(right_node, b)}.transpose({i}, {j})`"
                    )
    small, large, text = (left, right, a) if left.dim() < right.dim() else (right, left, b)
    if small.dim() < large.dim():
        for spot in range(small.dim() + 1):
            if mismatch(small.unsqueeze(spot).shape, large.shape) is None:
                return (
                    f"insert the missing axis: "
                    f"`{_group(left_node if small is left else right_node, text)}.unsqueeze({spot})`"
                )
    for node, value in clash:
        size, other = int(value.shape[axis]), next(int(v.shape[axis]) for n, v in clash if n is not node)
        found = source(scene, node, size) if {size, other} <= lengths(scene) else None
        wanted = _argument_with(scene, other, found[2]) if found is not None else ""
        if found is not None and wanted:
            return (
                f"`{found[1]}` is made from `{found[2]}`, whose length is {size}; "
                f"make it from `{wanted}`, whose length is {other}"
            )
    tables = [(n, v) for n, v in clash if _is_table(scene, n)]
    if len(tables) == 1:
        node, value = tables[0]
        size, other = int(value.shape[axis]), next(int(v.shape[axis]) for n, v in clash if n is not node)
        if other in lengths(scene) and size > other:
            spot = value.dim() + axis
            return (
                f"cut `{scene.text(node, 40)}` to the text: `{scene.text(node, 40)}[{':, ' * spot}:{other}]`"
            )
    return f"make axis {axis} of `{a}` and of `{b}` equal, or 1"


def _is_table(scene: Scene, node: ast.AST) -> bool:
    """Whether an operand is an attribute of the module, as it is kept."""
    return isinstance(node, ast.Attribute) and is_tensor(scene.value(node))


def _argument_with(scene: Scene, size: int, other: str) -> str:
    """Another argument of the function that has a given size."""
    if scene.reader is None:
        return ""
    code = scene.reader.body.frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        value = scene.reader.body.locals.get(name)
        if name != other and is_tensor(value) and size in tuple(value.shape[:-1]):
            return name
    return ""


def _group(node: ast.AST, text: str) -> str:
    return f"({text})" if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.IfExp) else text


def _expanded(scene: Scene, op: Op) -> Diagnostic | None:
    """`expand` to sizes that an axis which is not 1 does not have."""
    if len(op.inputs) < 2 or not is_tensor(op.inputs[0][1]):
        return None
    node, value = op.inputs[0]
    asked = [size for _, size in op.inputs[1:]]
    if len(asked) == 1 and isinstance(asked[0], tuple | list):
        asked = list(asked[0])
    if any(type(size) is not int for size in asked) or len(asked) < value.dim():
        return None
    shape = [int(n) for n in value.shape]
    wrong = [
        axis
        for axis in range(1, len(shape) + 1)
        if asked[-axis] not in (-1, shape[-axis]) and shape[-axis] != 1
    ]
    if not wrong:
        return None
    axis = wrong[0]
    return scene.finding(
        CODE,
        f"`{scene.text(node, 40)}` {sizes(shape)} cannot be expanded to {sizes(asked)}",
        label=f"axis {-axis} is {shape[-axis]}, not 1 and not {asked[-axis]}",
        labels=misfits(scene, [(node, value)]),
        help=f"ask for {shape[-axis]} on axis {-axis}, or expand an axis that is 1",
    )


def _written(scene: Scene) -> Diagnostic | None:
    """`cache[:, :T] = k` where the place and the value differ in shape."""
    node = scene.node
    if not (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)):
        return None
    statement = scene.shot.statement if scene.shot is not None else None
    if not isinstance(statement, ast.Assign) or not isinstance(scene.error, RuntimeError | IndexError):
        return None
    cache, index, value = scene.value(node.value), scene.value(node.slice), scene.value(statement.value)
    if not is_tensor(cache) or not is_plain(index) or not is_tensor(value):
        return None
    place = cache[index]
    if mismatch(place.shape, value.shape) is None:
        return None
    labels = [label for label in (defined(scene, statement.value), defined(scene, node.value)) if label]
    return scene.finding(
        CODE,
        f"`{scene.text(statement.value, 40)}` {sizes(value.shape)} "
        f"cannot be written to `{scene.text(node, 40)}` "
        f"{sizes(place.shape)}",
        label=f"{sizes(place.shape)} is to take {sizes(value.shape)}",
        labels=labels,
        help="write a value of the same shape as the place, or choose the place by the value's own sizes",
    )
