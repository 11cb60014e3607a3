"""AS134: calls without end.

A function, a property or `__getattr__` calls itself, directly or through another, and never comes back.

It is bad because the traceback is a thousand equal lines.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            return self(x)

Cure: call what was meant (a submodule, the base class), or give the recursion an end.

    - return self(x)
    + return x
"""

from __future__ import annotations

from collections import Counter

from attnscope.crashes.scene import Scene
from attnscope.diagnostic import Diagnostic
from attnscope.source import parse

CODE = "AS134"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not issubclass(type(scene.error), RecursionError) or not scene.shots:
        return None
    counts = Counter((shot.file, shot.span.line) for shot in scene.shots)
    (file, line), times = counts.most_common(1)[0]
    shot = next(one for one in scene.shots if one.file == file and one.span.line == line)
    name = shot.frame.f_code.co_name
    parsed = parse(file)
    labels = []
    if shot.function is not None and parsed is scene.file:
        labels.append(scene.label(shot.function, f"`{name}` begins here"))
    return scene.finding(
        CODE,
        f"`{name}` calls itself without end",
        label=f"this line was entered {times} times",
        labels=labels,
        help="call what was meant here, or return before the next call",
        at=shot.span,
    )
