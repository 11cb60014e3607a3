"""AS112: a layer is given another number of features than it takes.

`nn.Linear(in_features, …)` multiplies the last axis; it has to be `in_features` long. Either the layer was
made with the wrong size, or it was handed the wrong tensor: the attention weights in place of the context,
or a tensor whose axes are still swapped.

It is bad because PyTorch speaks of "mat1 and mat2", flattened, and of neither the layer nor the tensor.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(16, 16)

        def forward(self, x):
            weights = torch.softmax(x @ x.transpose(-2, -1), dim=-1)
            return self.out(weights)

Cure: hand the layer the tensor that it is for (`weights @ x`), or make it for the features that come.

    - return self.out(weights)
    + return self.out(weights @ x)
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.history import Link
from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.suspects import defined, different, overwritten, trail, unique, unread
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS112"


def wanted(scene: Scene, op: Op) -> tuple[int, ast.expr, Any] | None:
    """(features that the layer takes, the operand, its twin) of the failing call, or None."""
    given = op.inputs[0] if op.inputs else next(iter(op.keywords.values()), None)
    if given is None or not is_tensor(given[1]) or given[1].dim() == 0:
        return None
    node, value = given
    if is_module(op.callee):
        kind = type(op.callee).__name__
        if kind in ("Linear", "NonDynamicallyQuantizableLinear", "LazyLinear"):
            features = read(op.callee, "in_features")
        elif kind in ("LayerNorm", "RMSNorm"):
            shape = read(op.callee, "normalized_shape")
            features = shape[-1] if isinstance(shape, tuple) and shape else None
        elif kind == "MultiheadAttention":
            features = read(op.callee, "embed_dim")
        elif kind == "Sequential":
            features = next(
                (
                    read(child, "in_features")
                    for child in (read(op.callee, "_modules") or {}).values()
                    if type(child).__name__ == "Linear"
                ),
                None,
            )
        else:
            return None
        return (features, node, value) if type(features) is int else None
    if op.name == "linear" and len(op.inputs) > 1 and is_tensor(op.inputs[1][1]):
        return int(op.inputs[1][1].shape[-1]), node, value
    if op.name == "layer_norm" and len(op.inputs) > 1:
        shape = op.inputs[1][1]
        if isinstance(shape, tuple | list) and shape and type(shape[-1]) is int:
            return shape[-1], node, value
    return None


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | AssertionError):
        return None
    known = wanted(scene, op)
    if known is None:
        return None
    features, node, value = known
    have = int(value.shape[-1])
    if have == features:
        return None
    callee = op.node.func if isinstance(op.node, ast.Call) else None
    layer = scene.text(callee) if callee is not None else op.name
    links = scene.history(node)
    labels: list[Label] = []
    weights = _weights(links)
    made = defined(scene, node)
    if made is not None:
        text = made.text
        if weights is not None:
            text += f", from the attention weights `{_short(scene, weights)}`"
        labels.append(Label(made.span, text))
    labels += unread(scene)
    lost = _lost(scene, node)
    if lost is not None:
        labels.append(scene.label(lost, "this value is overwritten before it is read"))
    if isinstance(callee, ast.Attribute):
        setting = scene.setting(callee.attr)
        if setting is not None:
            labels.append(scene.label(setting.target, f"`{callee.attr}` takes {features} features"))
    way = trail(scene, node, {label.span.line for label in labels})
    labels += sorted(way, key=lambda one: " gives " in one.text)
    labels += different(scene, [(node, value)])
    text = scene.text(node, 50)
    return scene.finding(
        CODE,
        f"`{layer}` takes {features} features, `{text}` {scene.shape(value, node)} has {have}",
        label=f"given {have} features",
        labels=unique(labels),
        help=_cure(
            scene,
            features,
            have,
            node,
            value,
            layer,
            weights,
            lost,
            read(op.callee, "out_features") if is_module(op.callee) else None,
        ),
    )


def _weights(links: list[Link]) -> Link | None:
    """The softmax that a tensor descends from with no product after it."""
    for link in links:
        if link.kind == "op" and link.name in ("matmul", "bmm", "einsum", "Linear", "linear"):
            return None
        if link.kind == "op" and link.name in ("softmax", "Softmax"):
            return link
    return None


def _short(scene: Scene, link: Link) -> str:
    statement = link.node
    if scene.file is not None:
        for parent in scene.file.ancestors(link.node):
            if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
                return parent.targets[0].id
            if isinstance(parent, ast.stmt):
                break
    return scene.text(statement, 30)


def _residual(scene: Scene, width: int) -> bool:
    """Whether what `forward` was given has that many channels: then so should what it gives."""
    forward = scene.reader.body.function if scene.reader is not None else None
    if not isinstance(forward, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    names = [one.arg for one in forward.args.args if one.arg != "self"]
    for name in names[:1]:
        value = scene.value(ast.Name(name, ast.Load()))
        if is_tensor(value) and value.dim() and int(value.shape[-1]) == width:
            return True
    return False


def _lost(scene: Scene, node: ast.AST) -> ast.stmt | None:
    for link in scene.history(node):
        if link.kind == "def":
            return overwritten(scene, link.name)
    return None


def _cure(
    scene: Scene,
    features: int,
    have: int,
    node: ast.AST,
    value: Any,
    layer: str,
    weights: Link | None,
    lost: ast.stmt | None,
    gives: object,
) -> str:
    text = scene.text(node, 50)
    if weights is not None:
        short = _short(scene, weights)
        if lost is not None and isinstance(lost, ast.Assign):
            return (
                f"merge the context of line {lost.lineno}, "
                f"`{scene.text(lost.value, 40)}`, not the weights `{short}`"
            )
        return f"project the context, the weights `{short}` times the values, not the weights themselves"
    shape = [int(n) for n in value.shape]
    if gives == have and _residual(scene, have):
        return f"make `{layer}` for {have} features: `nn.Linear({have}, {gives})`"
    if gives == have:
        return f"swap the sizes of `{layer}`: `nn.Linear({have}, {features})`"
    if "…" in text:
        text = "it"
    if gives is UNKNOWN:
        return f"make `{layer}` for {have} features, or give it a tensor whose last axis is {features}"
    other = [axis for axis, size in enumerate(shape[:-1]) if size == features]
    if other:
        return (
            f"axis {other[-1]} of `{text}` has {features}: move it last, `{text}.transpose({other[-1]}, -1)`"
        )
    if len(shape) > 2 and shape[-1] * shape[-2] == features:
        return f"merge the last two axes of `{text}` {sizes(shape)}: `{text}.flatten(-2)`"
    if len(shape) == 4 and shape[1] * shape[3] == features:
        return f"merge the heads of `{text}` {sizes(shape)}: `{text}.transpose(1, 2).flatten(2)`"
    return f"make `{layer}` with {have} input features, or give it a tensor of {features} features"
