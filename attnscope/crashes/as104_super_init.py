"""AS104: `super().__init__()` was not called, or called too late.

`nn.Module.__init__` makes the tables in which parameters, buffers and submodules are kept. Without it the
first assignment of a layer fails, or, where only plain values were assigned, the first call.

It is bad because the message then speaks of PyTorch's inner tables (`_modules`, `_backward_hooks`, …), which
appear nowhere in the user's code.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            self.query = nn.Linear(16, 16)

        def forward(self, x):
            return self.query(x)

Cure: make `super().__init__()` the first statement of `__init__`.

      def __init__(self):
    +     super().__init__()
"""

from __future__ import annotations

import ast
import re

from attnscope.crashes.missing import missing
from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import is_before, is_init_call, methods, settings
from attnscope.crashes.values import INTERNALS, UNKNOWN, is_module, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS104"
_EARLY = re.compile(r"before Module\.__init__\(\) call")


def diagnose(scene: Scene) -> Diagnostic | None:
    early = isinstance(scene.error, AttributeError) and bool(_EARLY.search(scene.words))
    found = missing(scene)
    inner = found is not None and (
        found.name in INTERNALS or found.name in ("_compiled_call_impl", "call_super_init")
    )
    lost = _inherited(scene) if found is not None and not early and not inner else None
    if not (early or inner or lost):
        return None
    if (
        inner
        and found is not None
        and is_module(found.owner)
        and read(found.owner, "_modules") is not UNKNOWN
    ):
        return None
    klass = scene.klass
    if klass is None or scene.file is None:
        return None
    init = next((one for one in methods(klass) if one.name == "__init__"), None)
    call = next((node for node in ast.walk(init) if is_init_call(node)), None) if init is not None else None
    message = f"`{klass.name}` sets up nothing: `super().__init__()` has not run"
    if call is not None and lost is None:
        label, where = "runs here, too late", call
        text = "move `super().__init__()` to the first line of `__init__`"
        node = scene.node
        if node is not None and is_before(call, node):
            return None
    elif init is not None:
        where, label = init, "`__init__` begins here and never calls `super().__init__()`"
        text = "make `super().__init__()` the first line of `__init__`"
    else:
        return None
    if lost:
        message = f"`{klass.name}` has no attribute `{lost}`: the constructor of its base class has not run"
    return scene.finding(
        CODE,
        message,
        label="needs what `nn.Module.__init__` makes" if not lost else "read here",
        labels=[scene.label(where, label), *_first(scene, init)],
        help=text,
    )


def _first(scene: Scene, init: ast.AST | None) -> list[Label]:
    """The statement of the constructor before which the call belongs."""
    body = init.body if isinstance(init, ast.FunctionDef) else []
    first = next(
        (one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))), None
    )
    return [scene.label(first, "`super().__init__()` belongs before this line")] if first is not None else []


def _inherited(scene: Scene) -> str | None:
    """The missing attribute, where a base class of the user's sets it and its `__init__` was not called."""
    found = missing(scene)
    if found is None or scene.klass is None or scene.file is None or not is_module(found.owner):
        return None
    init = next((one for one in methods(scene.klass) if one.name == "__init__"), None)
    if init is None or any(is_init_call(node) and "super" in scene.text(node) for node in ast.walk(init)):
        return None
    bases = {scene.text(base) for base in scene.klass.bases}
    for node in ast.walk(scene.file.tree):
        if (
            isinstance(node, ast.ClassDef)
            and node.name in bases
            and any(one.name == found.name for one in settings(node))
        ):
            return found.name
    return None
