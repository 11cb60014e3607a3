"""AS136: a size is no integer.

Sizes of a `view`, a layer or a range must be integers. `/` gives a float in Python, also where it divides
evenly; a tensor, None or a type in the place of a size is the wrong name.

It is bad because the message speaks of argument types, and 4.0 looks like a good size.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            b, t, c = x.shape
            return x.view(b, t, 2, c / 2)

Cure: divide with `//`, or give the size that was meant.

    - return x.view(b, t, 2, c / 2)
    + return x.view(b, t, 2, c // 2)
"""

from __future__ import annotations

import ast
import math
from typing import Any

import torch

from attnscope.crashes.cause import trail
from attnscope.crashes.scene import Op, Scene
from attnscope.crashes.values import UNKNOWN, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS136"
_METHODS = ("view", "reshape", "expand", "repeat", "unflatten", "split")


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if not issubclass(type(scene.error), TypeError) or scene.node is None:
        return None
    if "must be bool" in scene.words:
        return _flag(scene, op) if op is not None else None
    if "slice indices" in scene.words:
        return _sliced(scene)
    if "float" not in scene.words:
        return (_other(scene, op) if op is not None else None) or _sliced(scene)
    given = _flat([*op.inputs, *op.keywords.values()]) if op is not None and op.words is not None else []
    wrong = [node for node, value in given if type(value) is float]
    return _float(scene, wrong[0]) if wrong else None


def _flat(given: list[tuple[ast.expr, Any]]) -> list[tuple[ast.expr, Any]]:
    """The arguments, those in brackets one by one."""
    found: list[tuple[ast.expr, Any]] = []
    for node, value in given:
        if isinstance(value, tuple | list) and isinstance(node, ast.Tuple | ast.List):
            found += zip(node.elts, value, strict=False)
        else:
            found.append((node, value))
    return found


def _flag(scene: Scene, op: Op) -> Diagnostic | None:
    """A number where a function wants true or false: arguments by position in the wrong order, mostly."""
    given = [*op.inputs, *op.keywords.values()]
    wrong = [(node, value) for node, value in given if type(value) is float]
    flags = [node for node, value in given if type(value) is bool]
    if not wrong:
        return None
    node, value = wrong[0]
    text = scene.text(node)
    swapped = len(flags) == 1 and len(wrong) == 1 and flags[0].col_offset < node.col_offset
    return scene.finding(
        CODE,
        f"`{text}` is {value}, a float, where `{op.name}` wants true or false",
        label=f"`{text}` stands where true or false belongs",
        labels=trail(scene, node)[:1],
        help=f"exchange `{scene.text(flags[0])}` and `{text}`, or give both by name"
        if swapped
        else f"give `{text}` by the name of the argument that it is for",
    )


def _other(scene: Scene, op: Op) -> Diagnostic | None:
    """A tensor, None or a type where a `view` wants a size."""
    if op.name not in (*_METHODS, "ones", "zeros", "full"):
        return None
    method = op.name in _METHODS and bool(op.inputs) and is_tensor(op.inputs[0][1])
    parts = _flat(list(op.inputs[method:]))
    wrong = [(n, v) for n, v in parts if v is not UNKNOWN and type(v) not in (int, tuple, list, torch.Size)]
    if not wrong:
        return None
    node, value = wrong[0]
    text = scene.text(node, 40)
    kind = "None" if value is None else f"a `{type(value).__name__}`"
    if is_tensor(value):
        kind = f"a tensor {scene.shape(value, node)}"
    labels = trail(scene, node)[:1]
    for other, _ in parts:
        labels += trail(scene, other, {label.span.line for label in labels})[:1]
    return scene.finding(
        CODE,
        f"`{text}` is {kind}, and `{op.name}` needs an integer size there",
        label=f"`{text}` is {kind}",
        labels=labels,
        help=_meant(text, value),
    )


def _meant(text: str, value: Any) -> str:
    such = f", such as `{text}.size(…)`" if is_tensor(value) else ""
    return f"give the size that is meant in place of `{text}`{such}"


def _sliced(scene: Scene) -> Diagnostic | None:
    """A slice whose bound is a float, or a tensor."""
    slices = [one for one in ast.walk(scene.node) if isinstance(one, ast.Slice)] if scene.node else []
    for bound in [bound for one in slices for bound in (one.lower, one.upper, one.step) if bound is not None]:
        value, text = scene.value(bound), scene.text(bound, 40)
        if type(value) is float:
            return _float(scene, bound)
        if is_tensor(value) and value.numel() > 1:
            return scene.finding(
                CODE,
                f"`{text}` is a tensor {scene.shape(value, bound)}, and the bound of a slice is an integer",
                label=f"`{text}` is a tensor",
                labels=trail(scene, bound),
                help=_meant(text, value),
            )
    return None


def _float(scene: Scene, wrong: ast.expr) -> Diagnostic:
    """A float as a size: where it became one, and the division that made it."""
    value, text = scene.value(wrong), scene.text(wrong)
    labels: list[Label] = []
    divisions = _divisions(wrong)
    inner = [one for one in ast.walk(wrong) if isinstance(one, ast.Name | ast.Attribute)]
    floats = [one for one in inner if type(scene.value(one)) is float]
    for link in scene.history(wrong if divisions or not floats else floats[0]):
        if link.kind == "def":
            labels.append(scene.label(link.node, f"`{link.name}` becomes {value} here"))
            divisions += _divisions(link.node)
        for one in ast.walk(link.node) if link.kind in ("def", "attribute") else ():
            setting = scene.setting(one.attr) if isinstance(one, ast.Attribute) else None
            if setting is not None and type(scene.value(one, link.env)) is float:
                labels.append(scene.label(setting.node, f"`{setting.name}` is set here"))
                divisions += _divisions(setting.node)
    cure = f"give an integer: `int({text})`"
    if not math.isfinite(value):
        cure = "give the size that is meant: this is another argument's place"
    if divisions:
        cure = f"divide with `//`: `{scene.text(divisions[0].left)} // {scene.text(divisions[0].right)}`"
    return scene.finding(
        CODE,
        f"`{text}` is {value}, a float, and a size must be an integer",
        label=f"`{scene.text(wrong, 40)}` is {value}",
        labels=labels,
        help=cure,
    )


def _divisions(node: ast.AST) -> list[ast.BinOp]:
    return [one for one in ast.walk(node) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
