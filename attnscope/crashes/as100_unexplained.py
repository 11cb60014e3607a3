"""AS100: the module raised, and no rule knows why.

What was observed is said: the exception, the line and the expression, and the shapes that met in it. Nothing
is guessed.

It is bad as any crash is; what it needs is read from the values beside it.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            return x + 1 / (x.size(1) - 6)

Cure: look at the expression with the values that are shown.

    - return x + 1 / (x.size(1) - 6)
    + return x + 1 / x.size(1)
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.cause import defined
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import UNKNOWN, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS100"


def diagnose(scene: Scene) -> Diagnostic:
    kind = type(scene.error).__name__
    message = f"`{kind}`: {scene.words[:240]}" if scene.words else f"`{kind}` was raised"
    notes: list[str] = []
    labels: list[Label] = []
    help_text = ""
    if scene.node is not None:
        nodes = _operands(scene)
        for node, value in nodes:
            text = scene.text(node, 50)
            if is_tensor(value):
                notes.append(
                    f"`{text}` is {scene.shape(value, node)} {str(value.dtype).removeprefix('torch.')}"
                )
            elif type(value) in (int, float, bool, str) and not isinstance(node, ast.Constant):
                notes.append(f"`{text}` is {str(value)[:60]}")
        labels = [label for node, value in nodes if is_tensor(value) for label in defined(scene, node)]
        help_text = f"look at {scene.quote(scene.node)} with the values above" if notes else ""
    elif scene.crash.phase == "backward":
        notes.append("it was raised in the backward pass")
    return scene.finding(CODE, message, label="raised here", labels=labels, notes=notes[:6], help=help_text)


def _operands(scene: Scene) -> list[tuple[ast.expr, Any]]:
    found: dict[str, tuple[ast.expr, Any]] = {}
    if scene.op is not None:
        for operand, value in (*scene.op.inputs, *scene.op.keywords.values()):
            found.setdefault(scene.text(operand), (operand, value))
    for node in ast.walk(scene.node) if scene.node is not None else ():
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.setdefault(scene.text(node), (node, scene.value(node)))
    return [(node, value) for node, value in found.values() if value is not UNKNOWN]
