"""AS137: the module has no `forward`.

`forward` is misspelt, or indented so that it is a function inside another one.

It is bad because everything up to the first call works.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def foward(self, x):
            return x

Cure: name it `forward`, at the level of `__init__`.
"""

from __future__ import annotations

import ast
import difflib

from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import methods
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS137"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not issubclass(type(scene.error), NotImplementedError) or "forward" not in scene.words:
        return None
    klass = scene.klass
    if klass is None:
        return None
    name = klass.name
    labels: list[Label] = []
    cure = "define `forward`"
    own = list(methods(klass))
    near = difflib.get_close_matches("forward", [one.name for one in own], 1, 0.6)
    inner = [
        node
        for node in ast.walk(klass)
        if isinstance(node, ast.FunctionDef) and node.name == "forward" and node not in klass.body
    ]
    if near:
        body = next(one for one in own if one.name == near[0])
        labels.append(scene.label(body, f"`{near[0]}` is defined here"))
        cure = f"rename `{near[0]}` to `forward`"
    elif inner:
        labels.append(scene.label(inner[0], "`forward` is defined here, inside another function"))
        cure = "indent `forward` like `__init__`"
    return scene.finding(CODE, f"`{name}` has no `forward`", label="called here", labels=labels, help=cure)
