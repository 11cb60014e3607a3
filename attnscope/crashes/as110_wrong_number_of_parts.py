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

from torch import nn

from attnscope.crashes.cause import defined, layer_label, unique
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS110"
_CUTS = ("split", "chunk", "unbind", "tensor_split")


def diagnose(scene: Scene) -> Diagnostic | None:
    return _unpacked(scene) or _split(scene)


def _unpacked(scene: Scene) -> Diagnostic | None:
    node = scene.node
    if not isinstance(scene.error, ValueError) or not isinstance(node, ast.Tuple | ast.List):
        return None
    statement = scene.shot.statement if scene.shot is not None else None
    names = len(node.elts)
    if not isinstance(statement, ast.Assign):
        return scene.finding(
            CODE, f"{names} names cannot take what each turn gives: {scene.words}", label="unpacked here",
            help="give as many names as each element has parts",
        )  # fmt: skip
    right, text = statement.value, f"`{scene.text(node)}` is {names} names for"
    value, base, call = scene.value(right), _shape_of(right), _parted(right)
    message = f"{text} {_count(value, scene)}"
    labels, cure = list[Label](), ""
    tensor = scene.value(base) if base is not None else None
    if base is not None and is_tensor(tensor):
        of = scene.text(base)
        message = f"{text} the {tensor.dim()} axes of `{of}`"
        labels = defined(scene, base)
        cure = f"`{of}` is {scene.shape(tensor, base)}: name {_plural(tensor.dim(), 'axis', 'axes')}"
        if names > tensor.dim() and isinstance(base, ast.Name):
            cure += f", or give `{of}` {_plural(names, 'axis', 'axes')}"
    elif base is None and call is not None:
        labels, cure = _call(scene, call, value, names)
    elif base is None and is_tensor(value):
        cure = f"`{scene.text(right)}` is {scene.shape(value, right)}: only its axis 0 is unpacked"
        labels = defined(scene, right)
    cure = cure or f"give as many names as there are parts, or make {names} parts"
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
    inner = node.func if isinstance(node, ast.Call) and not node.args else node
    wanted = "shape" if inner is node else "size"
    return inner.value if isinstance(inner, ast.Attribute) and inner.attr == wanted else None


def _parted(node: ast.AST | None) -> ast.Call | None:
    """The call whose parts are unpacked: in place, or run over by a comprehension."""
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        node = node.generators[0].iter
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id in ("map", "tuple", "list"):
        return _parted(node.args[-1]) if node.args else None
    return node


def _call(scene: Scene, right: ast.Call, value: Any, names: int) -> tuple[list[Label], str]:
    op = scene.operation_of(right, scene.env)
    if op is None:
        return [], ""
    whole = scene.value(right)
    if op.name in _CUTS and op.inputs and is_tensor(op.inputs[0][1]):
        node, tensor = op.inputs[0]
        first, where = (op.inputs[1][1] if len(op.inputs) > 1 else None), op.argument(2, "dim")
        axis = where[1] if where is not None and type(where[1]) is int else 0
        if op.name == "unbind" and type(first) is int:
            axis = first
        size = int(tensor.shape[axis]) if -tensor.dim() <= axis < tensor.dim() else 0
        cure = f"`{scene.text(node)}` is {scene.shape(tensor, node)}"
        axes = [i for i, n in enumerate(tensor.shape) if type(first) is int and int(n) == names * first]
        if op.name == "split" and type(first) is int and size % names == 0:
            cure += f": axis {axis} has {size}, so {names} parts are `split({size // names}, …)`; "
            cure += f"or make it {names} × {first} = {names * first}"
        elif op.name == "split" and type(first) is int and axes:
            cure += f": split along axis {axes[0]}, which has {names * first}"
        else:
            cure += f": make axis {axis} ({size}) into {names} parts"
        return _layer(scene, node), cure
    if is_tensor(whole) and whole.dim():
        given = f"`{scene.text(right, 50)}` is {scene.shape(whole, right)}: unpacking goes along axis 0"
        cut = whole.dim() > 1 and int(whole.shape[-1]) % names == 0
        return _layer(scene, right), given + (f"; cut it first, `.chunk({names}, dim=-1)`" if cut else "")
    if isinstance(op.callee, nn.MultiheadAttention):
        return [], "`nn.MultiheadAttention` returns two values: `output, weights = …`"
    if isinstance(value, tuple | list):
        return [], f"`{scene.text(right.func)}` gives {len(value)} values: take {len(value)} names"
    return [], ""


def _layer(scene: Scene, node: ast.AST) -> list[Label]:
    """Where the layer that made a tensor is set, else where the tensor was made."""
    labels = [label for link in scene.history(node) for label in layer_label(scene, link)]
    return labels[:1] or defined(scene, node)


def _split(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or op.name not in ("split", "split_with_sizes", "chunk") or len(op.inputs) < 2:
        return None
    node, tensor = op.inputs[0]
    if not isinstance(scene.error, RuntimeError) or not is_tensor(tensor):
        return None
    first, parts = op.inputs[1]
    if type(parts) is int and parts <= 0:
        what = "the number of parts" if op.name == "chunk" else "the size of a part"
        return scene.finding(
            CODE,
            f"`{op.name}` is given {parts} as {what}",
            label=f"`{scene.text(first)}` comes first here",
            labels=_layer(scene, node),
            help=f"give {what} first and then the axis: "
            f"`{op.name}({'3' if op.name == 'chunk' else 'size'}, dim=-1)`",
        )
    axis = (op.argument(2, "dim") or (None, 0))[1]
    if not isinstance(parts, tuple | list) or any(type(size) is not int for size in parts):
        return None
    if type(axis) is not int or not -tensor.dim() <= axis < tensor.dim():
        return None
    whole, total = int(tensor.shape[axis]), sum(parts)
    other = [i for i, n in enumerate(tensor.shape) if int(n) == total]
    return scene.finding(
        CODE,
        f"parts of {list(parts)} are {total}, and axis {axis} of `{scene.text(node)}` has {whole}",
        label=f"`{scene.text(node, 40)}` is {scene.shape(tensor, node)}",
        labels=_layer(scene, node),
        help=f"split along axis {other[0]}, which has {total}" if other else f"make the parts sum to {whole}",
    )
