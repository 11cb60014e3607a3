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
from collections.abc import Iterator
from typing import Any

from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import settings
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label
from attnscope.ops.catalog import FACTORIES
from attnscope.source import class_of

CODE = "AS119"
_FACTORIES = FACTORIES | frozenset(
    "tensor randint tril_indices triu_indices from_numpy as_tensor logspace".split()
)


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError | NotImplementedError | ValueError):
        return None
    words = scene.words
    met = "expected" in words.lower() or "same device" in words or "on device" in words
    if "device" not in words or not met:
        return None
    node: ast.AST | None = scene.op.node if scene.op is not None else scene.node
    found = _unregistered(scene)
    if found is None and node is not None:
        found = _attribute(scene, node) or _made(scene, node)
    return found or _plain(scene, node)


def _raw(scene: Scene, node: ast.AST) -> Any:
    """The user's own tensor, not its twin: a name or an attribute of the frame."""
    if isinstance(node, ast.Name) and scene.reader is not None:
        scopes = (scene.reader.inner, scene.reader.body.locals, scene.reader.shot.frame.f_globals)
        return next((known[node.id] for known in scopes if node.id in known), UNKNOWN)
    if isinstance(node, ast.Attribute):
        owner = _raw(scene, node.value)
        return UNKNOWN if owner is UNKNOWN or is_tensor(owner) else read(owner, node.attr)
    if isinstance(node, ast.Subscript):
        owner, index = _raw(scene, node.value), scene.value(node.slice)
        if type(owner) in (list, tuple) and type(index) is int and -len(owner) <= index < len(owner):
            return owner[index]
        return scene.value(node) if is_module(owner) else UNKNOWN
    return UNKNOWN


def _home(scene: Scene) -> str:
    """The device of the module's parameters, else of the arguments."""
    for module in scene.below(scene.crash.module if scene.crash.module is not None else scene.owner):
        for value in (read(module, "_parameters") or {}).values():
            if is_tensor(value):
                return str(value.device.type)
    if scene.crash.device:
        return scene.crash.device.split(":")[0]
    return next((str(value.device.type) for _, value in scene.arguments if is_tensor(value)), "")


def _unregistered(scene: Scene) -> Diagnostic | None:
    """A layer that no registered module holds: kept in a list, or made in `forward`."""
    top, op = scene.crash.module, scene.op
    known = {id(module) for module in scene.below(top)}
    layers = [op.callee if op is not None else None, scene.owner]
    stranger = next((one for one in layers if is_module(one) and id(one) not in known), None)
    if top is None or stranger is None:
        return None
    kind = type(stranger).__name__
    held = _holder(scene, top, stranger)
    if held is not None:
        owner, container, labels = held
        return scene.finding(
            CODE,
            f"`{kind}` is not registered in `{type(owner).__name__}`, and did not move with it",
            label="its parameters stayed behind",
            labels=labels,
            help=f"keep them in `nn.Module{'Dict' if container == 'dict' else 'List'}(…)`",
        )
    links = scene.history(op.words) if op is not None and op.words is not None else []
    made = [link for link in links if link.kind == "def"]
    return scene.finding(
        CODE,
        f"a `{kind}` that is not registered in `{type(top).__name__}` did not move with it",
        label="its parameters stayed behind",
        labels=[scene.label(link.node, f"`{link.name}` is made here, in each call") for link in made[:1]],
        help="make the layer in `__init__` and keep it on `self`",
    )


def _holder(scene: Scene, top: Any, stranger: Any) -> tuple[Any, str, list[Label]] | None:
    """(the module, the type, where it is set) of an attribute whose plain container holds a layer."""
    for module in scene.below(top):
        for name, value in list(object.__getattribute__(module, "__dict__").items()):
            if type(value) not in (list, tuple, dict) or name.startswith("_"):
                continue
            items = list(value.values()) if type(value) is dict else list(value)
            if not any(one is stranger for item in items for one in scene.below(item)):
                continue
            held, kind = class_of(type(module)), type(value).__name__
            text = f"`{name}` is a Python {kind}: `nn.Module` does not see the layers in it"
            places = [one for one in settings(held[1]) if one.name == name] if held is not None else []
            spans = [held[0].node_span(one.target) for one in places[:1]] if held is not None else []
            return module, kind, [Label(span, text) for span in spans]
    return None


def _making(scene: Scene, name: ast.Name) -> Iterator[ast.AST]:
    """All nodes in the making of one name."""
    for link in scene.history(name):
        inner = getattr(link.node, "value", link.node) if link.kind == "def" else link.node
        yield from ast.walk(inner if isinstance(inner, ast.AST) else link.node)


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def _attribute(scene: Scene, node: ast.AST) -> Diagnostic | None:
    """A tensor kept as a plain attribute, read in the failing expression or in the making of its names."""
    home = _home(scene)
    nodes = [*ast.walk(node), *(inner for name in _names(node) for inner in _making(scene, name))]
    for inner in nodes:
        value = _raw(scene, inner) if isinstance(inner, ast.Attribute) else None
        if not isinstance(inner, ast.Attribute) or not is_tensor(value) or str(value.device.type) == home:
            continue
        owner, name = _raw(scene, inner.value), inner.attr
        tables = (
            [read(owner, table) or {} for table in ("_buffers", "_parameters")] if is_module(owner) else []
        )
        if any(name in table for table in tables):
            continue
        setting = scene.setting(name)
        text = f"`{name}` is a plain attribute, not a buffer: `.to()` does not move it"
        shown = scene.text(setting.value, 50) if setting is not None and setting.value is not None else "…"
        return scene.finding(
            CODE,
            f"`{scene.text(inner)}` is on `{value.device.type}`, the module on `{home}`",
            label="two devices meet here",
            labels=scene.set_at(inner, text),
            help=f'register it: `self.register_buffer("{name}", {shown}, persistent=False)`',
        )
    return None


def _made(scene: Scene, node: ast.AST) -> Diagnostic | None:
    """A tensor that `forward` makes without saying where."""
    home, places = _home(scene), list(ast.walk(node))
    for name in _names(node):
        value = _raw(scene, name)
        if not (is_tensor(value) and home and str(value.device.type) == home):
            places += _making(scene, name)
    for one in places:
        if not isinstance(one, ast.Call) or any(word.arg == "device" for word in one.keywords):
            continue
        called = one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
        if called in _FACTORIES:
            tensor = next((name for name, value in scene.arguments if is_tensor(value)), "x")
            return scene.finding(
                CODE,
                f"`{scene.text(one, 50)}` makes a tensor on the default device, the module is on `{home}`",
                label="two devices meet here",
                labels=[scene.label(one, "made without `device=`")],
                help=f"say where: `{scene.text(one, 60)[:-1]}, device={tensor}.device)`",
            )
    return None


def _plain(scene: Scene, node: ast.AST | None) -> Diagnostic:
    """The devices of all that meet; where the file itself makes a tensor, outside of any class."""
    notes, labels, home = dict[str, None](), list[Label](), _home(scene)
    made = [
        one for one in (scene.file.tree.body if scene.file is not None else ()) if isinstance(one, ast.Assign)
    ]
    for one in ast.walk(node) if node is not None else ():
        value = _raw(scene, one) if isinstance(one, ast.Name | ast.Attribute) else UNKNOWN
        if not is_tensor(value):
            continue
        notes[f"`{scene.text(one)}` is on `{value.device}`"] = None
        for statement in made if isinstance(one, ast.Name) and str(value.device.type) != home else ():
            if any(isinstance(target, ast.Name) and target.id == one.id for target in statement.targets):  # type: ignore[attr-defined]
                text = f"`{scene.text(one)}` is made outside of the module, and does not move with it"
                labels.append(scene.label(statement, text))
    return scene.finding(
        CODE,
        "tensors on different devices meet",
        label="two devices meet here",
        labels=labels,
        notes=list(notes) or [scene.words],
        help="move all of them to one device: register what belongs "
        "to the module, and make the rest with `device=`",
    )
