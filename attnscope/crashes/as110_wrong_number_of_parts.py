"""AS110: a split or an unpacking has another number of parts than the code expects.

`q, k, v = …` needs exactly three parts. A `split` whose size is not a third of the channels, a layer that
gives two thirds of what is cut, a shape with another number of axes, a call that returns a tuple show so.

It is bad because the names on the left then belong to other things than their names say.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 32)

        def forward(self, x):
            q, k, v = self.qkv(x).split(16, dim=-1)
            return q @ k.transpose(-2, -1) @ v

Cure: make the parts and the names agree: here `nn.Linear(16, 48)`.

    - self.qkv = nn.Linear(16, 32)
    + self.qkv = nn.Linear(16, 48)
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.suspects import defined, layer_label, unique
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS110"


def diagnose(scene: Scene) -> Diagnostic | None:
    return _unpacked(scene) or _split(scene)


def _unpacked(scene: Scene) -> Diagnostic | None:
    node = scene.node
    if not isinstance(scene.error, ValueError) or not isinstance(node, ast.Tuple | ast.List):
        return None
    statement = scene.shot.statement if scene.shot is not None else None
    names = len(node.elts)
    text = scene.text(node)
    right = getattr(statement, "value", None) if isinstance(statement, ast.Assign) else None
    value = scene.value(right) if right is not None else UNKNOWN
    labels: list[Label] = []
    if right is None:
        return scene.finding(
            CODE, f"{names} names cannot take what each turn gives: {scene.words}", label="unpacked here",
            help="give as many names as each element has parts",
        )  # fmt: skip
    message = f"`{text}` is {names} names for {_count(value, scene)}"
    cure = f"give as many names as there are parts, or make {names} parts"
    base = _shape_of(right)
    if base is not None:
        tensor = scene.value(base)
        if is_tensor(tensor):
            message = f"`{text}` is {names} names for the {tensor.dim()} axes of `{scene.text(base)}`"
            labels += [label for label in [defined(scene, base)] if label is not None]
            cure = (
                f"`{scene.text(base)}` is {scene.shape(tensor, base)}: "
                f"name {_plural(tensor.dim(), 'axis', 'axes')}"
            )
            if names > tensor.dim() and isinstance(base, ast.Name):
                cure += f", or give `{base.id}` {_plural(names, 'axis', 'axes')}"
    elif (call := _parted(right)) is not None:
        more = _call(scene, call, value, names)
        labels += more[0]
        cure = more[1] or cure
    elif is_tensor(value):
        cure = f"`{scene.text(right)}` is {scene.shape(value, right)}: only its axis 0 is unpacked"
        labels += [label for label in [defined(scene, right)] if label is not None]
    return scene.finding(CODE, message, label="unpacked here", labels=unique(labels), help=cure)


def _count(value: Any, scene: Scene) -> str:
    if isinstance(value, tuple | list):
        return _plural(len(value), "part", "parts")
    if is_tensor(value) and value.dim():
        return f"a tensor {sizes(value.shape)}, which unpacks into {int(value.shape[0])}"
    return f"another number of values ({scene.words})"


def _plural(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _shape_of(node: ast.AST) -> ast.expr | None:
    """`x` in `x.shape` and `x.size()`."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("size",)
        and not node.args
    ):
        return node.func.value
    return None


def _parted(node: ast.AST) -> ast.Call | None:
    """The call whose parts are unpacked: in place, or run over by a comprehension."""
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        node = node.generators[0].iter
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("map", "tuple", "list")
    ):
        inner = node.args[-1] if node.args else None
        return _parted(inner) if inner is not None else None
    return node if isinstance(node, ast.Call) else None


def _call(scene: Scene, right: ast.Call, value: Any, names: int) -> tuple[list[Label], str]:
    op = scene.operation_of(right, scene.env)
    if op is None:
        return [], ""
    labels: list[Label] = []
    if op.name in ("split", "chunk", "unbind", "tensor_split") and op.inputs and is_tensor(op.inputs[0][1]):
        node, tensor = op.inputs[0]
        source = _layer_label(scene, node)
        labels += source
        first = op.inputs[1][1] if len(op.inputs) > 1 else None
        where = op.argument(2, "dim")
        axis = where[1] if where is not None and type(where[1]) is int else 0
        if op.name == "unbind":
            axis = first if type(first) is int else axis
        whole = int(tensor.shape[axis]) if -tensor.dim() <= axis < tensor.dim() else 0
        given = f"`{scene.text(node)}` is {scene.shape(tensor, node)}"
        if op.name == "split" and type(first) is int:
            if whole % names == 0:
                return labels, (
                    f"{given}: axis {axis} has {whole}, so {names} parts are `split({whole // names}, …)`; "
                    f"or make it {names} × {first} = {names * first}"
                )
            other = [i for i, n in enumerate(tensor.shape) if int(n) == names * first]
            if other:
                return labels, f"{given}: split along axis {other[0]}, which has {names * first}"
        return labels, f"{given}: make axis {axis} ({whole}) into {names} parts"
    whole = scene.value(right)
    if is_tensor(whole) and whole.dim():
        given = f"`{scene.text(right, 50)}` is {scene.shape(whole, right)}: unpacking goes along axis 0"
        last = int(whole.shape[-1])
        cut = f"; cut it first, `.chunk({names}, dim=-1)`" if last % names == 0 and whole.dim() > 1 else ""
        return _layer_label(scene, right), given + cut
    if is_module(op.callee) and type(op.callee).__name__ == "MultiheadAttention":
        return labels, "`nn.MultiheadAttention` returns two values: `output, weights = …`"
    if isinstance(value, tuple | list):
        return labels, f"`{scene.text(right.func)}` gives {len(value)} values: take {len(value)} names"
    return labels, ""


def _layer_label(scene: Scene, node: ast.AST) -> list[Label]:
    """Where the layer that made a tensor is set, else where the tensor was made."""
    for link in scene.history(node):
        label = layer_label(scene, link)
        if label is not None:
            return [label]
    made = defined(scene, node)
    return [made] if made is not None else []


def _split(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or op.name not in ("split", "split_with_sizes", "chunk"):
        return None
    if not isinstance(scene.error, RuntimeError) or not op.inputs or not is_tensor(op.inputs[0][1]):
        return None
    first = op.inputs[1] if len(op.inputs) > 1 else None
    if first is not None and type(first[1]) is int and first[1] <= 0:
        what = "the number of parts" if op.name == "chunk" else "the size of a part"
        return scene.finding(
            CODE,
            f"`{op.name}` is given {first[1]} as {what}",
            label=f"`{scene.text(first[0])}` comes first here",
            labels=_layer_label(scene, op.inputs[0][0]),
            help=f"give {what} first and then the axis: "
            f"`{op.name}({'3' if op.name == 'chunk' else 'size'}, dim=-1)`",
        )
    node, tensor = op.inputs[0]
    parts, where = (
        op.argument(1, "split_size_or_sections") or op.argument(1, "split_size"),
        op.argument(2, "dim"),
    )
    axis = where[1] if where is not None else 0
    if parts is None or not isinstance(parts[1], tuple | list) or type(axis) is not int:
        return None
    if any(type(size) is not int for size in parts[1]) or not -tensor.dim() <= axis < tensor.dim():
        return None
    whole, total = int(tensor.shape[axis]), sum(parts[1])
    other = [i for i, n in enumerate(tensor.shape) if int(n) == total]
    cure = f"make the parts sum to {whole}"
    if other:
        cure = f"split along axis {other[0]}, which has {total}"
    return scene.finding(
        CODE,
        f"parts of {list(parts[1])} are {total}, and axis {axis} of `{scene.text(node)}` has {whole}",
        label=f"`{scene.text(node, 40)}` is {scene.shape(tensor, node)}",
        labels=_layer_label(scene, node),
        help=cure,
    )
