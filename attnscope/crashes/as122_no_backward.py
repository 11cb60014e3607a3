"""AS122: there is no graph to go back through.

`backward()` was called twice on one graph, on a value that depends on nothing that requires a gradient
(detached, made under `no_grad`, rebuilt from numbers), or on something that is no single number.

It is bad because parameters get no gradient, or the wrong one.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(16, 16)

        def forward(self, x):
            return self.query(x).detach()

Cure: leave out the `detach()` or `no_grad`; call `backward()` once, on a scalar loss.

    - return self.query(x).detach()
    + return self.query(x)
"""

from __future__ import annotations

import ast

from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import methods
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS122"


def diagnose(scene: Scene) -> Diagnostic | None:
    words = scene.words
    if not isinstance(scene.error, RuntimeError):
        return None
    if "backward through the graph a second time" in words:
        return scene.finding(
            CODE,
            "the backward pass went through one graph twice",
            label="the second time",
            labels=[label for view in scene.views() or [scene] for label in _kept(view)],
            notes=[
                "the first pass freed what it kept; a tensor kept "
                "from an earlier call still hangs on its graph"
            ],
            help="run the forward pass again before each `backward()`, "
            "and `detach()` what is kept from call to call",
        )
    if "does not require grad" in words and "grad_fn" in words:
        return scene.finding(
            CODE,
            "nothing in the result requires a gradient",
            label="the backward pass starts here" if scene.shot is not None else "",
            labels=[label for view in scene.views() or [scene] for label in _cuts(view)],
            help="leave out what cuts the graph (`detach()`, `.data`, `no_grad`, `.item()`), and train what "
            "requires a gradient",
        )
    if "grad can be implicitly created only for scalar outputs" in words:
        return scene.finding(
            CODE,
            "`backward()` was called on something that is no single number",
            label="called here",
            help="reduce it first: `.mean().backward()` or `.sum().backward()`",
        )
    return None


def _cuts(scene: Scene) -> list[Label]:
    """Places of the class that cut the graph."""
    found: list[Label] = []
    if scene.klass is None:
        return found
    for function in methods(scene.klass):
        if function.name == "__init__":
            continue
        for decorator in function.decorator_list:
            if "no_grad" in scene.text(decorator) or "inference_mode" in scene.text(decorator):
                found.append(scene.label(decorator, "no graph is made in here"))
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in ("detach", "data", "item", "tolist", "numpy"):
                found.append(scene.label(node, f"`.{node.attr}` cuts the graph"))
            if isinstance(node, ast.withitem) and any(
                w in scene.text(node.context_expr) for w in ("no_grad", "inference_mode")
            ):
                found.append(scene.label(node.context_expr, "no graph is made in here"))
    return found


def _kept(scene: Scene) -> list[Label]:
    """Attributes that the forward pass sets: what is kept from call to call."""
    return [
        scene.label(one.target, f"`{one.name}` is kept from call to call")
        for one in scene.settings
        if one.function.name != "__init__"
    ][:2]
