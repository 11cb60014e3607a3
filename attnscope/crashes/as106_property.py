"""AS106: a property fails inside, and `nn.Module` reports the property itself as missing.

When a property of a module raises an AttributeError, Python falls back to `nn.Module.__getattr__`, which
knows no such name and says so. What failed inside the property is lost.

It is bad because the message names an attribute that plainly exists.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = 2

        @property
        def head_dim(self):
            return self.width // self.heads

        def forward(self, x):
            return x / self.head_dim**0.5

Cure: set what the property reads (here `self.width`), or mend the name that it reads.

      self.heads = 2
    + self.width = 16
"""

from __future__ import annotations

import ast
import inspect

from attnscope.crashes.missing import missing, on_self
from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import methods, nearness, self_name
from attnscope.crashes.values import UNKNOWN, read
from attnscope.diagnostic import Diagnostic

CODE = "AS106"


def diagnose(scene: Scene) -> Diagnostic | None:
    found = missing(scene)
    if found is None or not on_self(found, scene) or scene.klass is None:
        return None
    if not isinstance(inspect.getattr_static(type(found.owner), found.name, None), property):
        return None
    body = next((one for one in methods(scene.klass) if one.name == found.name), None)
    if body is None:
        return None
    me = self_name(body)
    lacking = [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == me
        and isinstance(node.ctx, ast.Load)
        and read(found.owner, node.attr) is UNKNOWN
    ]
    message = f"the property `{found.name}` of `{type(found.owner).__name__}` failed inside"
    if not lacking:
        return scene.finding(
            CODE,
            message,
            label="read here",
            labels=[scene.label(body, "an AttributeError was raised in here")],
            help=f"read what `{found.name}` reads, line by line: one of its attributes is missing",
        )
    node = lacking[0]
    names = [one.name for one in scene.settings]
    near = sorted((n for n in names if nearness(n, node.attr) >= 0.6), key=lambda n: -nearness(n, node.attr))
    return scene.finding(
        CODE,
        message,
        label="read here",
        labels=[scene.label(node, f"`{scene.text(node)}` does not exist")],
        help=f"read `{me}.{near[0]}` in `{found.name}`"
        if near
        else f"set `{scene.text(node)}` in `__init__`, or mend its name in `{found.name}`",
    )
