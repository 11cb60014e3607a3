"""AS119: tensors on different devices meet.

`module.to(device)` moves parameters, buffers and registered submodules, and nothing else. A tensor kept as a
plain attribute, layers kept in a Python list, and tensors made in `forward` without `device=` stay behind.

It is bad because it works on one device, and such a tensor is missing from the state dict as well.

Example:

    import torch
    from torch import nn

    device = "meta"

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.ones(16, 16)

        def forward(self, x):
            return x + self.scale[:6]

Cure: `self.register_buffer("scale", …, persistent=False)`, `nn.ModuleList`, or `device=x.device`.

    - self.scale = torch.ones(16, 16)
    + self.register_buffer("scale", torch.ones(16, 16), persistent=False)
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import settings
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label
from attnscope.source import class_of

CODE = "AS119"
_FACTORIES = (
    "zeros ones full empty rand randn arange linspace eye "
    "tensor randint tril_indices triu_indices from_numpy "
    "as_tensor logspace"
).split()


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError | NotImplementedError | ValueError):
        return None
    words = scene.words
    spoken = "device" in words and (
        "expected" in words.lower() or "same device" in words or "on device" in words
    )
    if not spoken:
        return None
    return _unregistered(scene) or _attribute(scene) or _made(scene) or _plain(scene)


def _raw(scene: Scene, node: ast.AST) -> Any:
    """The user's own tensor, not its twin: a name or an attribute of the frame."""
    if isinstance(node, ast.Name) and scene.reader is not None:
        for known in (scene.reader.inner, scene.reader.body.locals):
            if node.id in known:
                return known[node.id]
        return scene.reader.shot.frame.f_globals.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        owner = _raw(scene, node.value)
        return UNKNOWN if owner is UNKNOWN or is_tensor(owner) else read(owner, node.attr)
    if isinstance(node, ast.Subscript):
        owner = _raw(scene, node.value)
        index = scene.value(node.slice)
        if type(owner) in (list, tuple) and type(index) is int and -len(owner) <= index < len(owner):
            return owner[index]
        if is_module(owner):
            return scene.value(node)
    return UNKNOWN


def _expression(scene: Scene) -> ast.AST | None:
    """The failing operation, with the assignment's right side where it is an augmented one."""
    return scene.op.node if scene.op is not None else scene.node


def _home(scene: Scene) -> str:
    """The device of the module's parameters, else of the arguments."""
    owner = scene.crash.module if scene.crash.module is not None else scene.owner
    stack = [owner] if is_module(owner) else []
    while stack:
        module = stack.pop()
        for value in (read(module, "_parameters") or {}).values():
            if is_tensor(value):
                return str(value.device.type)
        stack += [child for child in (read(module, "_modules") or {}).values() if is_module(child)]
    if scene.crash.device:
        return scene.crash.device.split(":")[0]
    if scene.reader is not None:
        code = scene.reader.body.frame.f_code
        for name in code.co_varnames[: code.co_argcount]:
            value = scene.reader.body.locals.get(name)
            if is_tensor(value):
                return str(value.device.type)
    return scene.crash.device or ""


def registered(module: Any) -> set[int]:
    """The ids of all modules that are registered below (and with) a module."""
    found: set[int] = set()
    stack = [module] if is_module(module) else []
    while stack:
        one = stack.pop()
        if id(one) in found:
            continue
        found.add(id(one))
        stack += [child for child in (read(one, "_modules") or {}).values() if is_module(child)]
    return found


def _unregistered(scene: Scene) -> Diagnostic | None:
    """A layer that no registered module holds: kept in a list, or made in `forward`."""
    top = scene.crash.module
    if top is None:
        return None
    known = registered(top)
    stranger: Any = None
    if scene.op is not None and is_module(scene.op.callee) and id(scene.op.callee) not in known:
        stranger = scene.op.callee
    elif is_module(scene.owner) and id(scene.owner) not in known:
        stranger = scene.owner
    if stranger is None:
        return None
    place = _holder(scene, top, known, stranger)
    if place is not None:
        owner, name, kind, span = place
        return scene.finding(
            CODE,
            f"`{type(stranger).__name__}` is not registered in "
            f"`{type(owner).__name__}`, and did not move with it",
            label="its parameters stayed behind",
            labels=[Label(span, f"`{name}` is a Python {kind}: `nn.Module` does not see the layers in it")]
            if span is not None
            else [],
            help=f"keep them in `nn.Module{'Dict' if kind == 'dict' else 'List'}(…)`",
        )
    labels = []
    callee = scene.op.node.func if scene.op is not None and isinstance(scene.op.node, ast.Call) else None
    for link in scene.history(callee) if callee is not None else ():
        if link.kind == "def":
            labels.append(scene.label(link.node, f"`{link.name}` is made here, in each call"))
            break
    return scene.finding(
        CODE,
        f"a `{type(stranger).__name__}` that is not registered "
        f"in `{type(top).__name__}` did not move with it",
        label="its parameters stayed behind",
        labels=labels,
        help="make the layer in `__init__` and keep it on `self`",
    )


def _holder(scene: Scene, top: Any, known: set[int], stranger: Any) -> Any:
    stack, seen = [top], set()
    while stack:
        module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        stack += [child for child in (read(module, "_modules") or {}).values() if is_module(child)]
        own = object.__getattribute__(module, "__dict__")
        for name, value in list(own.items()):
            if type(value) not in (list, tuple, dict) or name.startswith("_"):
                continue
            items = list(value.values()) if type(value) is dict else list(value)
            if any(
                item is stranger or (is_module(item) and id(stranger) in registered(item)) for item in items
            ):
                held = class_of(type(module))
                span = None
                if held is not None:
                    file, klass = held
                    place = next((one for one in settings(klass) if one.name == name), None)
                    if place is not None:
                        span = file.node_span(place.target)
                return module, name, type(value).__name__, span
    return None


def _attribute(scene: Scene) -> Diagnostic | None:
    """A tensor kept as a plain attribute of the module."""
    home = _home(scene)
    node = _expression(scene)
    if node is None:
        return None
    for inner, name in _attributes(scene, node):
        value = _raw(scene, inner)
        if not is_tensor(value) or str(value.device.type) == home:
            continue
        owner = _raw(scene, inner.value)
        if is_module(owner) and (
            name in (read(owner, "_buffers") or {}) or name in (read(owner, "_parameters") or {})
        ):
            continue
        setting = scene.setting(name)
        labels = []
        if setting is not None:
            labels.append(
                scene.label(
                    setting.target, f"`{name}` is a plain attribute, not a buffer: `.to()` does not move it"
                )
            )
        shown = scene.text(setting.value, 50) if setting is not None and setting.value is not None else "…"
        return scene.finding(
            CODE,
            f"`{scene.text(inner)}` is on `{value.device.type}`, the module on `{home}`",
            label="two devices meet here",
            labels=labels,
            help=f'register it: `self.register_buffer("{name}", {shown}, persistent=False)`',
        )
    return None


def _attributes(scene: Scene, node: ast.AST) -> list[tuple[ast.Attribute, str]]:
    """Attributes in the failing expression, then in the makings of the names in it."""
    found = [(one, one.attr) for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    for name in [one for one in ast.walk(node) if isinstance(one, ast.Name)]:
        for link in scene.history(name):
            inner = link.node
            found += [(one, one.attr) for one in ast.walk(inner) if isinstance(one, ast.Attribute)]
    return found


def _made(scene: Scene) -> Diagnostic | None:
    """A tensor that `forward` makes without saying where."""
    node = _expression(scene)
    home = _home(scene)
    if node is None:
        return None
    places: list[ast.AST] = list(ast.walk(node))
    for name in [one for one in ast.walk(node) if isinstance(one, ast.Name)]:
        value = _raw(scene, name)
        if is_tensor(value) and home and str(value.device.type) == home:
            continue
        for link in scene.history(name):
            inner = getattr(link.node, "value", link.node) if link.kind == "def" else link.node
            if isinstance(inner, ast.AST):
                places += list(ast.walk(inner))
    for one in places:
        if not isinstance(one, ast.Call):
            continue
        called = one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
        if called in _FACTORIES and not any(word.arg == "device" for word in one.keywords):
            tensor = _first_tensor(scene)
            where = f"device={tensor}.device" if tensor else "device=x.device"
            return scene.finding(
                CODE,
                f"`{scene.text(one, 50)}` makes a tensor on the default device, the module is on `{home}`",
                label="two devices meet here",
                labels=[scene.label(one, "made without `device=`")],
                help=f"say where: `{scene.text(one, 60)[:-1]}, {where})`",
            )
    return None


def _first_tensor(scene: Scene) -> str:
    if scene.reader is None:
        return ""
    code = scene.reader.body.frame.f_code
    for name in code.co_varnames[: code.co_argcount]:
        if is_tensor(scene.reader.body.locals.get(name)):
            return name
    return ""


def _plain(scene: Scene) -> Diagnostic:
    node = _expression(scene)
    notes = []
    labels: list[Label] = []
    home = _home(scene)
    for one in ast.walk(node) if node is not None else ():
        if isinstance(one, ast.Name | ast.Attribute):
            value = _raw(scene, one)
            if is_tensor(value):
                notes.append(f"`{scene.text(one)}` is on `{value.device}`")
                if isinstance(one, ast.Name) and str(value.device.type) != home:
                    labels += _outside(scene, one.id)
    return scene.finding(
        CODE,
        "tensors on different devices meet",
        label="two devices meet here",
        labels=labels,
        notes=list(dict.fromkeys(notes)) or [scene.words],
        help="move all of them to one device: register what belongs "
        "to the module, and make the rest with `device=`",
    )


def _outside(scene: Scene, name: str) -> list[Label]:
    """Where the file itself makes a tensor, outside of any class."""
    return [
        scene.label(one, f"`{name}` is made outside of the module, and does not move with it")
        for one in (scene.file.tree.body if scene.file is not None else ())
        if isinstance(one, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in one.targets)
    ]
