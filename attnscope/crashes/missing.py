"""Which attribute was missing, on what, and how the source uses it: shared by the attribute rules."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from attnscope.crashes.scene import Scene
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor

_WORDS = re.compile(r"(?:'([^']+)' object|type object '([^']+)'|module '([^']+)') has no attribute '([^']+)'")


@dataclass(frozen=True, eq=False)
class Missing:
    """`node` is the read in the source (None if it cannot be found), `owner` the object that lacks `name`."""

    name: str
    kind: str
    owner: Any
    node: ast.Attribute | None


def missing(scene: Scene) -> Missing | None:
    """The attribute that an AttributeError is about; None for any other exception."""
    if not issubclass(type(scene.error), AttributeError):
        return None
    found = _WORDS.search(scene.words)
    name = found[4] if found else None
    kind = (found[1] or found[2] or found[3]) if found else ""
    if name is None:
        raw = getattr(scene.error, "name", None)
        name = raw if type(raw) is str else None
    if name is None:
        return None
    node = _node(scene, name)
    owner: Any = scene.value(node.value) if node is not None else UNKNOWN
    if owner is UNKNOWN and node is None and is_module(scene.owner):
        owner = scene.owner if type(scene.owner).__name__ == kind else UNKNOWN
    if owner is UNKNOWN:
        raw = getattr(scene.error, "obj", None)
        owner = raw if raw is not None else UNKNOWN
    return Missing(name, kind, owner, node)


def _node(scene: Scene, name: str) -> ast.Attribute | None:
    roots: list[ast.AST] = [
        root for root in (scene.node, scene.shot.statement if scene.shot else None) if root
    ]
    for root in roots:
        for node in ast.walk(root):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                private = node.attr.startswith("__") and name.endswith(node.attr)
                if node.attr == name or private:
                    return node
    return None


def on_self(found: Missing, scene: Scene) -> bool:
    """Whether the attribute is missing on the module whose code stands there."""
    return found.owner is not UNKNOWN and found.owner is scene.owner


def owner_words(found: Missing) -> str:
    """`` `CausalSelfAttention` ``: what lacks the attribute, for a message."""
    if isinstance(found.owner, ModuleType):
        return f"the module `{found.owner.__name__}`"
    if is_tensor(found.owner):
        return "a tensor"
    if found.owner is UNKNOWN:
        return f"`{found.kind}`"
    return f"`{type(found.owner).__name__}`"
