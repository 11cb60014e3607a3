"""Masks among operands: which one is a mask, where it was given, what it is under `~` and `== 0`."""

from __future__ import annotations

import ast
from typing import Any

import torch

from attnscope.crashes.cause import defined
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Label

_NAMES = ("mask", "bias", "tril", "causal", "triu", "keep", "pad", "allowed", "block", "look_back", "visible")


def looks_like_mask(scene: Scene, node: ast.AST, value: Any) -> bool:
    """Whether an operand is a mask: boolean, made by tril or triu, or so called."""
    if is_tensor(value) and value.dtype == torch.bool:
        return True
    words = scene.text(node).lower()
    named = isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Compare | ast.UnaryOp)
    if named and any(name in words for name in _NAMES):
        return True
    return any(link.name in ("tril", "triu", "compare", "invert") for link in scene.history(node))


def given_at(scene: Scene, node: ast.AST) -> list[Label]:
    """The parameter that an operand is, else where it was made."""
    links = scene.history(node)
    last = links[-1] if links and all(link.kind != "def" for link in links) else None
    if last is not None and last.kind == "argument" and is_tensor(last.value) and scene.function is not None:
        for argument in (*scene.function.args.args, *scene.function.args.kwonlyargs):
            if argument.arg == last.name:
                text = f"`{last.name}` {sizes(last.value.shape)} is given here"
                return [scene.label(argument, text)]
    return defined(scene, node)


def bare(scene: Scene, node: ast.AST) -> tuple[str, Any]:
    """The mask itself, under `~`, `== 0`, `.bool()`: its words and its twin."""
    casts = ("bool", "to", "float", "logical_not", "eq", "ne", "type")
    while True:
        if isinstance(node, ast.UnaryOp):
            node = node.operand
        elif isinstance(node, ast.Compare):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in casts:
            node = node.func.value
        else:
            return scene.text(node, 50), scene.value(node)
