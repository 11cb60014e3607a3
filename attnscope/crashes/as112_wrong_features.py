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

from torch import nn

from attnscope.crashes.cause import defined, different, overwritten, trail, unique, unread
from attnscope.crashes.history import Link
from attnscope.crashes.repairs import MERGES, fitting
from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label
from attnscope.ops.catalog import LAYERS, PRODUCTS, SOFTMAXES

CODE = "AS112"


def _wanted(op: Op) -> Any:
    """The features that a layer takes (UNKNOWN: it is none of these)."""
    layer = op.callee
    if isinstance(layer, nn.Sequential):
        children = (read(layer, "_modules") or {}).values()
        layer = next((one for one in children if isinstance(one, nn.Linear)), None)
    if isinstance(layer, nn.Linear):
        return read(layer, "in_features")
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return (read(layer, "normalized_shape") or (UNKNOWN,))[-1]
    if isinstance(layer, nn.MultiheadAttention):
        return read(layer, "embed_dim")
    second = op.inputs[1][1] if len(op.inputs) > 1 else None
    if op.name == "linear" and is_tensor(second):
        return int(second.shape[-1])
    return second[-1] if op.name == "layer_norm" and isinstance(second, tuple | list) and second else UNKNOWN


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if op is None or op.given is None or not isinstance(scene.error, RuntimeError | AssertionError):
        return None
    (node, value), features = op.given, _wanted(op)
    if type(features) is not int or not is_tensor(value) or value.dim() == 0 or value.shape[-1] == features:
        return None
    have, text = int(value.shape[-1]), scene.text(node, 50)
    layer = scene.text(op.words) if op.words is not None else op.name
    links = scene.history(node)
    weights, labels = _weights(links), defined(scene, node)
    if weights is not None:
        said = f", from the attention weights `{_short(scene, weights)}`"
        labels = [Label(one.span, one.text + said) for one in labels]
    labels += unread(scene)
    name = next((link.name for link in links if link.kind == "def"), "")
    lost = overwritten(scene, name)
    if lost is not None:
        labels.append(scene.label(lost, "this value is overwritten before it is read"))
    labels += scene.set_at(op.words, f"`{layer.split('.')[-1]}` takes {features} features")
    way = trail(scene, node, {label.span.line for label in labels})
    labels += sorted(way, key=lambda one: " gives " in one.text)
    labels += different(scene, [(node, value)])
    if weights is not None:
        short = _short(scene, weights)
        cure = f"project the context, the weights `{short}` times the values, not the weights themselves"
        if isinstance(lost, ast.Assign):
            context = f"line {lost.lineno}, `{scene.text(lost.value, 40)}`"
            cure = f"merge the context of {context}, not the weights `{short}`"
    else:
        gives = read(op.callee, "out_features") if is_module(op.callee) else None
        cure = _cure(scene, layer, features, node, value, gives)
    return scene.finding(
        CODE,
        f"`{layer}` takes {features} features, `{text}` {scene.shape(value, node)} has {have}",
        label=f"given {have} features",
        labels=unique(labels),
        help=cure,
    )


def _weights(links: list[Link]) -> Link | None:
    """The softmax that a tensor descends from with no product after it."""
    for link in links:
        if link.kind == "op" and link.name in PRODUCTS | LAYERS | {"Linear"}:
            return None
        if link.kind == "op" and link.name in SOFTMAXES | {"Softmax"}:
            return link
    return None


def _short(scene: Scene, link: Link) -> str:
    """The variable that a step is assigned to, else its text."""
    for parent in scene.file.ancestors(link.node) if scene.file is not None else ():
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            return parent.targets[0].id
        if isinstance(parent, ast.stmt):
            break
    return scene.text(link.node, 30)


def _cure(scene: Scene, layer: str, features: int, node: ast.expr, value: Any, gives: object) -> str:
    text, have, shape = scene.text(node, 50), int(value.shape[-1]), [int(n) for n in value.shape]
    if gives == have:
        # What `forward` is given has that many channels: then so should what it gives.
        first = next((one for name, one in scene.arguments if name != "self"), None)
        if is_tensor(first) and first.dim() and int(first.shape[-1]) == have:
            return f"make `{layer}` for {have} features: `nn.Linear({have}, {gives})`"
        return f"swap the sizes of `{layer}`: `nn.Linear({have}, {features})`"
    text = "it" if "…" in text else text
    if gives is UNKNOWN:
        return f"make `{layer}` for {have} features, or give it a tensor whose last axis is {features}"
    if features in shape[:-1]:
        axis = max(axis for axis, size in enumerate(shape[:-1]) if size == features)
        return f"axis {axis} of `{text}` has {features}: move it last, `{text}.transpose({axis}, -1)`"
    for edit in fitting(value, lambda tensor: int(tensor.shape[-1]) == features, MERGES):
        return f"{edit.why} of `{text}` {sizes(shape)}: `{edit.words.format(text)}`"
    return f"make `{layer}` with {have} input features, or give it a tensor of {features} features"
