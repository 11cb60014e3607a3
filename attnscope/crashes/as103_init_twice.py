"""AS103: `nn.Module.__init__` ran a second time and emptied the module.

`nn.Module.__init__` makes the tables of parameters, buffers and submodules afresh. Called again after
layers were assigned, it throws them away: the attribute was set, and is gone.

It is bad because nothing fails where it happens; the loss shows at the first read, or never, when the
parameters are simply not trained.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(16, 16)
            nn.Module.__init__(self)

        def forward(self, x):
            return self.query(x)

Cure: call `super().__init__()` once, as the first statement of `__init__`.

    - nn.Module.__init__(self)
"""

from __future__ import annotations

import ast

from attnscope.crashes.missing import missing, on_self
from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import is_before, is_init_call
from attnscope.diagnostic import Diagnostic

CODE = "AS103"


def diagnose(scene: Scene) -> Diagnostic | None:
    found = missing(scene)
    if found is None or not on_self(found, scene) or scene.klass is None:
        return None
    place = scene.setting(found.name)
    if place is None or scene.file is None:
        return None
    again = [node for node in ast.walk(place.function) if is_init_call(node) and is_before(place.node, node)]
    if not again:
        return None
    call = again[0]
    return scene.finding(
        CODE,
        f"`{type(found.owner).__name__}` has lost its attribute `{found.name}`",
        label="read here",
        labels=[
            scene.label(call, f"`{scene.text(call)}` empties the module of what was set before"),
            scene.label(place.target, f"`{found.name}` is set here"),
        ],
        help=f"call `super().__init__()` once, first in `__init__`; delete `{scene.text(call)}` here",
    )
