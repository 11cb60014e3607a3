"""AS105: a buffer, parameter or submodule is given a name that cannot be given.

The name exists already on the module (as a plain attribute, a method, another buffer), holds a dot, is
empty, or a value of another kind is assigned to the name of a parameter or a submodule.

It is bad because one of the two meanings would be lost; PyTorch refuses.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = None
            self.register_buffer("mask", torch.ones(8, 8).tril())

        def forward(self, x):
            return x

Cure: choose another name, or delete the assignment that came first.

    - self.mask = None
"""

from __future__ import annotations

import re

from attnscope.crashes.scene import Scene
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS105"
_EXISTS = re.compile(r"attribute '([^']+)' already exists")
_KIND = re.compile(
    r"cannot assign '?([^' ]+)'?(?: object)? (?:as|to) (parameter|child module|buffer) '([^']+)'"
)
_NAME = re.compile(r"(parameter|buffer|module) name (can't (?:contain|be)|should be) ")


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, KeyError | TypeError) or scene.shot is None:
        return None
    exists, kind, odd = (pattern.search(scene.words) for pattern in (_EXISTS, _KIND, _NAME))
    if exists:
        name = exists[1]
        here = scene.shot.span.line
        earlier = [one for one in scene.settings if one.name == name and scene.head(one.node).line != here]
        labels: list[Label] = []
        if earlier:
            labels = [scene.label(earlier[0].target, f"`{name}` is set here first")]
        elif scene.klass is not None:
            taken = next((n for n in scene.klass.body if getattr(n, "name", None) == name), None)
            labels = [scene.label(taken, f"`{name}` is defined here")] if taken is not None else []
        what = "" if labels else "; `nn.Module` itself has it"
        return scene.finding(
            CODE,
            f"the name `{name}` is taken{what}",
            label="registered here",
            labels=labels,
            help=f"register it under another name, or delete what sets `{name}` before"
            if labels
            else f"register it under another name than `{name}`",
        )
    if kind:
        given, table, name = kind[1], kind[2], kind[3]
        setting = next(
            (one for one in scene.settings if one.name == name and one.node is not scene.shot.statement), None
        )
        wrap = {
            "parameter": f"wrap the value, `nn.Parameter(…)`, or use another name than `{name}`",
            "child module": f"keep the value under another name than `{name}`, which holds a submodule",
            "buffer": f"assign a tensor or None to `{name}`, or use another name",
        }[table]
        return scene.finding(
            CODE,
            f"a value of type `{given}` cannot take the place of the {table} `{name}`",
            label="assigned here",
            labels=[scene.label(setting.target, f"`{name}` is a {table} since here")] if setting else [],
            help=wrap,
        )
    if odd:
        return scene.finding(
            CODE,
            f"this name cannot be given to a {odd[1]}",
            label="registered here",
            notes=[scene.words],
            help="give the name first, as a string that is not empty and has no dot",
        )
    return None
