"""AS130: a dict, a list or a sequence of layers has no such entry.

It is bad because the message is the key alone.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = {"n_head": 2}

        def forward(self, x):
            return x * self.sizes["n_heads"]

Cure: use the key that is there, or add the entry.

    - return x * self.sizes["n_heads"]
    + return x * self.sizes["n_head"]
"""

from __future__ import annotations

import ast
import difflib
from typing import Any

from attnscope.crashes.scene import Scene
from attnscope.crashes.syntax import nearness
from attnscope.crashes.values import is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS130"


def diagnose(scene: Scene) -> Diagnostic | None:
    if not issubclass(type(scene.error), KeyError | IndexError) or scene.node is None:
        return None
    node = _subscript(scene)
    if node is None:
        return None
    owner, index = scene.value(node.value), scene.value(node.slice)
    text = scene.text(node.value, 50)
    labels: list[Label] = []
    if isinstance(node.value, ast.Attribute):
        setting = scene.setting(node.value.attr)
        if setting is not None:
            labels.append(scene.label(setting.target, f"`{node.value.attr}` is set here"))
    elif isinstance(node.value, ast.Name) and scene.reader is not None:
        found = scene.env.definition(node.value.id)
        if found is not None:
            labels.append(scene.label(found[0], f"`{text}` is made here"))
    shown = repr(index) if type(index) in (str, int) else scene.text(node.slice, 40)
    if is_tensor(owner) and owner.dim() and type(index) is int:
        return scene.finding(
            CODE, f"`{text}` {scene.shape(owner, node.value)} has no "
            f"index {index} on axis 0", label="indexed here",
            labels=labels, help=f"index axis 0 from 0 to {int(owner.shape[0]) - 1}, or index another axis",
        )  # fmt: skip
    keys = _keys(owner)
    if keys is None:
        return scene.finding(
            CODE, f"`{text}` has no entry {shown}", label="looked up here", labels=labels,
            help="use a key that is there, or add the entry first",
        )  # fmt: skip
    if all(isinstance(key, int) for key in keys) and type(index) is int:
        number = len(keys)
        return scene.finding(
            CODE, f"`{text}` has {number} {'entry' if number == 1 else 'entries'}, and no entry {index}",
            label="looked up here", labels=labels,
            help=f"index it from 0 to {number - 1}" if number else "fill it first",
        )  # fmt: skip
    names = [key for key in keys if isinstance(key, str)]
    near = difflib.get_close_matches(str(index), names, 1, 0.6)
    if not near:
        near = [name for name in names if type(index) is str and nearness(name, index) >= 0.65][:1]
    return scene.finding(
        CODE,
        f"`{text}` has no entry `{index}`" if type(index) is str else f"`{text}` has no entry {shown}",
        label="looked up here",
        labels=labels,
        notes=[f"it has {', '.join(f'`{name}`' for name in names[:12])}"] if names else [],
        help=f'use `"{near[0]}"`' if near else "use a key that is there, or add the entry first",
    )


def _subscript(scene: Scene) -> ast.Subscript | None:
    if isinstance(scene.node, ast.Subscript):
        return scene.node
    for node in ast.walk(scene.node) if scene.node is not None else ():
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            return node
    return None


def _keys(owner: Any) -> list[Any] | None:
    if type(owner) is dict:
        return list(owner)[:200]
    if isinstance(owner, list | tuple):
        return list(range(len(owner)))
    if is_module(owner):
        children = read(owner, "_modules")
        keys = list(children) if isinstance(children, dict) else []
        return list(range(len(keys))) if all(key.isdigit() for key in keys) else keys
    return None
