"""What a method of the module has to make before `forward` may be called: a cache, a table of positions."""

from __future__ import annotations

import ast
import inspect

from torch import nn

from attnscope.loader.probe import user_frames
from attnscope.source import node_at, parse

_NOT_CALLED = ("__init__", "forward")


def to_prepare(error: BaseException | None) -> tuple[str, str] | None:
    """`freqs` and `setup(length)`: an attribute that is None, which a guard of the module's own refuses, and
    the method that sets it."""
    frames = user_frames(error)
    if not frames:
        return None
    frame, _, lasti = frames[-1]
    module, place = frame.f_locals.get("self"), node_at(frame.f_code, lasti)
    if place is None or not isinstance(module, nn.Module):
        return None
    file, node = place
    parents = [node, *file.ancestors(node)]
    if not any(isinstance(p, ast.Raise | ast.Assert) for p in parents):
        return None
    tests = [p.test for p in parents if isinstance(p, ast.If | ast.Assert)][:1]
    for name in [n.attr for test in tests for n in ast.walk(test) if isinstance(n, ast.Attribute)]:
        setter = _setter(module, name) if getattr(module, name, 0) is None else None
        if setter is not None:
            return name, setter
    return None


def _setter(module: nn.Module, name: str) -> str | None:
    """The method of the module's class that sets the attribute, as it is called."""
    file = parse(inspect.getsourcefile(type(module)) or "")
    classes = {c.__name__ for c in type(module).__mro__}
    for node in ast.walk(file.tree) if file is not None else ():
        if not isinstance(node, ast.ClassDef) or node.name not in classes:
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name not in _NOT_CALLED and _sets(method, name):
                return f"{method.name}({', '.join(a.arg for a in method.args.args[1:])})"
    return None


def _sets(method: ast.FunctionDef, name: str) -> bool:
    stores = [n for n in ast.walk(method) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    return any(n.attr == name and isinstance(n.value, ast.Name) and n.value.id == "self" for n in stores)
