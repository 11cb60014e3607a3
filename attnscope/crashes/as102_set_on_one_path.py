"""AS102: an attribute is set on one path only, and read on another.

The class does set the attribute, but under a condition that did not hold, in a method that has not run, or
further down than the place that reads it.

It is bad because the module works or fails by a switch (a PyTorch version, a flag) that seems to have
nothing to do with it.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self, flash=True):
            super().__init__()
            self.flash = flash
            if not flash:
                self.register_buffer("mask", torch.ones(8, 8).tril())

        def forward(self, x):
            scores = x @ x.transpose(-2, -1)
            return scores.masked_fill(self.mask[:6, :6] == 0, float("-inf"))

Cure: set it unconditionally in `__init__`, or read it only where the same condition holds.

    - if not flash:
    -     self.register_buffer("mask", torch.ones(8, 8).tril())
    + self.register_buffer("mask", torch.ones(8, 8).tril())
"""

from __future__ import annotations

import ast

from attnscope.crashes.missing import missing, on_self
from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import Setting, guards, is_before
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS102"


def diagnose(scene: Scene) -> Diagnostic | None:
    found = missing(scene)
    if found is None or not on_self(found, scene) or scene.file is None or scene.klass is None:
        return None
    places = [one for one in scene.settings if one.name == found.name]
    if not places:
        return None
    message = f"`{type(found.owner).__name__}` has no attribute `{found.name}`"
    place = places[0]
    function = scene.reader.body.function if scene.reader is not None else None
    labels: list[Label] = []
    conditions = [one for one in guards(scene.file, place.node) if isinstance(one, ast.If)]
    if conditions:
        condition = conditions[0]
        negated = _in(condition.orelse, place.node)
        held = "held" if negated else "did not hold"
        labels = [
            scene.label(
                condition.test, f"`{scene.text(condition.test)}` {held}, so `{found.name}` was not set"
            ),
            scene.label(place.target, f"`{found.name}` is {_verb(place)} here, under that condition alone"),
        ]
        cure = (
            f"{_imperative(place)} `{found.name}` unconditionally, "
            f"before `{scene.text(condition.test, 50)}` is asked"
        )
        if place.function is not function:
            cure += ", or read it only where the same condition holds"
    elif place.function is function and found.node is not None and not is_before(place.node, found.node):
        labels = [scene.label(place.target, f"`{found.name}` is {_verb(place)} here, after it is read")]
        cure = f"move `{scene.text(place.node, 60)}` above the line that reads `{scene.text(found.node)}`"
    elif place.function.name not in ("__init__", "forward"):
        labels = [
            scene.label(
                place.target, f"`{found.name}` is {_verb(place)} here, in `{place.function.name}`, alone"
            )
        ]
        cure = f"call `{place.function.name}` first, or set `{found.name}` in `__init__`"
    else:
        return None
    return scene.finding(CODE, message, label="read here", labels=labels, help=cure)


def _in(body: list[ast.stmt], node: ast.AST) -> bool:
    return any(node is inner for statement in body for inner in ast.walk(statement))


def _verb(place: Setting) -> str:
    return "registered" if place.registered else "set"


def _imperative(place: Setting) -> str:
    return "register" if place.registered else "set"
