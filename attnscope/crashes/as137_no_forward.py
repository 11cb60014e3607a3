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

    - def foward(self, x):
    + def forward(self, x):
"""

from __future__ import annotations

import ast
import difflib
import re

from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import methods
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS137"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not issubclass(type(scene.error), NotImplementedError) or "forward" not in scene.words:
        return None
    container = re.search(r"Module \[(ModuleList|ModuleDict|ParameterList|ParameterDict)\]", scene.words)
    if container:
        return _container(scene, container[1])
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


def _container(scene: Scene, kind: str) -> Diagnostic:
    """A list or a dict of layers was called as if it were one layer."""
    called = scene.op.words if scene.op is not None else None
    text = scene.text(called) if called is not None else "it"
    labels = scene.set_at(called, f"`{text.split('.')[-1]}` is set here")
    return scene.finding(
        CODE,
        f"`{text}` is an `nn.{kind}`: it holds layers and cannot be called",
        label="called here",
        labels=labels,
        help=f"call its layers one by one, `for layer in {text}: …`, or make it an `nn.Sequential`"
        if kind == "ModuleList"
        else f"call one of its entries: `{text}[…](…)`",
    )
