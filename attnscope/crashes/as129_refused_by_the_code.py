"""AS129: the code itself refuses: an `assert` or a `raise`.

The module (or PyTorch) checks something and found it otherwise. What it checked and what the values were is
known; what was meant is not.

It is bad because an `assert` without a message shows neither.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            assert x.dim() == 4
            return x

Cure: give what is asked for, or mend the check.

    - assert x.dim() == 4
    + assert x.dim() == 3
"""

from __future__ import annotations

import ast
from typing import Any

import torch

from attnscope.crashes.cause import defined
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import UNKNOWN, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS129"


def diagnose(scene: Scene) -> Diagnostic | None:
    statement = scene.shot.statement if scene.shot is not None else None
    raised = isinstance(statement, ast.Raise)
    if not isinstance(scene.error, AssertionError) and not raised:
        return None
    test = scene.condition
    notes: list[str] = []
    labels: list[Label] = []
    seen: set[str] = set()
    for node in ast.walk(test if test is not None else ast.Pass()):
        if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            text = scene.text(node, 50)
            value = scene.value(node)
            if text in seen or value is UNKNOWN:
                continue
            if type(value) in (int, float, bool, str, type(None)) or _sizes(value):
                seen.add(text)
                notes.append(f"`{text}` is {str(value)[:80]}")
            elif is_tensor(value):
                seen.add(text)
                notes.append(f"`{text}` is {scene.shape(value, node)}")
                labels += defined(scene, node)
    if isinstance(statement, ast.Assert):
        message = f"`{scene.text(statement.test, 70)}` does not hold"
    elif raised:
        message = f"the code raises `{type(scene.error).__name__}` here"
    else:
        message = "PyTorch refuses what it is given"
    if test is not None and raised:
        labels.insert(0, scene.label(test, "this condition held"))
    if scene.words:
        notes.append(f"it says: {scene.words[:200]}")
    if test is None and scene.op is not None:
        notes += [scene.show(node, value) for node, value in scene.op.tensors][:4]
    return scene.finding(
        CODE,
        message,
        label="refused here",
        labels=labels,
        notes=notes,
        help="give what is asked for here, or mend the check",
    )


def _sizes(value: Any) -> bool:
    """Whether the value is a short tuple of plain integers, such as a shape."""
    return type(value) in (tuple, torch.Size) and all(type(one) is int for one in value)
