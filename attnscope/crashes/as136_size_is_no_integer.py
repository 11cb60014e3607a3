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

import torch

from attnscope.crashes.cause import trail
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import UNKNOWN, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS136"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not issubclass(type(scene.error), TypeError) or scene.node is None:
        return None
    if "must be bool" in scene.words:
        return _flag(scene)
    if "float" not in scene.words and "slice indices" not in scene.words:
        return _other(scene) or _sliced(scene)
    if "slice indices" in scene.words:
        return _sliced(scene)
    op = scene.op
    if op is None or not isinstance(op.node, ast.Call):
        return None
    parts: list[ast.expr] = []
    for node, value in (*op.inputs, *op.keywords.values()):
        if type(value) is float:
            parts.append(node)
        elif isinstance(value, tuple | list) and isinstance(node, ast.Tuple | ast.List):
            parts += [one for one, item in zip(node.elts, value, strict=False) if type(item) is float]
    if not parts:
        return None
    return _report(scene, parts[0])


def _flag(scene: Scene) -> Diagnostic | None:
    """A number where a function wants true or false: arguments by position in the wrong order, mostly."""
    op = scene.op
    if op is None:
        return None
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


def _other(scene: Scene) -> Diagnostic | None:
    """A tensor, None or a type where a `view` wants a size."""
    op = scene.op
    if op is None or op.name not in (
        "view",
        "reshape",
        "expand",
        "repeat",
        "unflatten",
        "ones",
        "zeros",
        "full",
        "split",
    ):
        return None
    method = op.name in ("view", "reshape", "expand", "repeat", "unflatten", "split")
    parts: list[tuple[ast.expr, object]] = []
    for node, value in op.inputs[1 if method and op.inputs and is_tensor(op.inputs[0][1]) else 0 :]:
        if isinstance(value, tuple | list) and isinstance(node, ast.Tuple | ast.List):
            parts += zip(node.elts, value, strict=False)
        else:
            parts.append((node, value))
    wrong = [(n, v) for n, v in parts if v is not UNKNOWN and type(v) not in (int, tuple, list, torch.Size)]
    if not wrong:
        return None
    node, value = wrong[0]
    text = scene.text(node, 40)
    kind = (
        f"a tensor {scene.shape(value, node)}"
        if is_tensor(value)
        else "None"
        if value is None
        else f"a `{type(value).__name__}`"
    )
    labels = trail(scene, node)[:1]
    for other, _ in parts:
        labels += trail(scene, other, {label.span.line for label in labels})[:1]
    return scene.finding(
        CODE,
        f"`{text}` is {kind}, and `{op.name}` needs an integer size there",
        label=f"`{text}` is {kind}",
        labels=labels,
        help=f"give the size that is meant in place of `{text}`, such as `{text}.size(…)`"
        if is_tensor(value)
        else f"give the size that is meant in place of `{text}`",
    )


def _sliced(scene: Scene) -> Diagnostic | None:
    """A slice whose bound is a float."""
    for node in ast.walk(scene.node) if scene.node is not None else ():
        if isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper, node.step):
                value = scene.value(bound) if bound is not None else None
                if bound is not None and type(value) is float:
                    return _report(scene, bound)
                if bound is not None and is_tensor(value) and value.numel() > 1:
                    text = scene.text(bound, 40)
                    return scene.finding(
                        CODE,
                        f"`{text}` is a tensor {scene.shape(value, bound)}, "
                        f"and the bound of a slice is an integer",
                        label=f"`{text}` is a tensor",
                        labels=trail(scene, bound),
                        help=f"give the size that is meant in place of `{text}`, such as `{text}.size(…)`",
                    )
    return None


def _leaf(scene: Scene, node: ast.expr) -> ast.expr:
    """The name or attribute in an expression that brings the float in."""
    if any(_divides(one) for one in ast.walk(node)):
        return node
    for one in ast.walk(node):
        if isinstance(one, ast.Name | ast.Attribute) and type(scene.value(one)) is float:
            return one
    return node


def _report(scene: Scene, wrong: ast.expr) -> Diagnostic:
    value = scene.value(wrong)
    labels: list[Label] = []
    division: ast.AST | None = None
    for link in scene.history(_leaf(scene, wrong)):
        if link.kind == "def":
            labels.append(scene.label(link.node, f"`{link.name}` becomes {value} here"))
            division = next((n for n in ast.walk(link.node) if _divides(n)), division)
            for one in ast.walk(link.node):
                if isinstance(one, ast.Attribute) and type(scene.value(one, link.env)) is float:
                    setting = scene.setting(one.attr)
                    if setting is not None:
                        labels.append(scene.label(setting.node, f"`{one.attr}` is set here"))
                        division = next((n for n in ast.walk(setting.node) if _divides(n)), division)
        elif link.kind == "attribute":
            setting = scene.setting(link.name)
            if setting is not None:
                labels.append(scene.label(setting.node, f"`{link.name}` is set here"))
                division = next((n for n in ast.walk(setting.node) if _divides(n)), division)
    division = division or next((n for n in ast.walk(wrong) if _divides(n)), None)
    cure = f"give an integer: `int({scene.text(wrong)})`"
    if not math.isfinite(value):
        cure = "give the size that is meant: this is another argument's place"
    if isinstance(division, ast.BinOp):
        cure = f"divide with `//`: `{scene.text(division.left)} // {scene.text(division.right)}`"
    return scene.finding(
        CODE,
        f"`{scene.text(wrong)}` is {value}, a float, and a size must be an integer",
        label=f"`{scene.text(wrong, 40)}` is {value}",
        labels=labels,
        help=cure,
    )


def _divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
