"""AS115: the text is longer than the module's context.

A table with one row per position (learned positions, rotary angles, a causal mask, a cache) was made for
fewer tokens than were given. An embedding then fails on its first index beyond; a slice of a table silently
stops at the table's end and fails later, where it is used.

It is bad because it depends on the text: short ones pass.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Parameter(torch.zeros(1, 4, 16))

        def forward(self, x):
            return x + self.positions[:, : x.size(1)]

Cure: make the table longer, or give at most as many tokens as it has rows.

    - self.positions = nn.Parameter(torch.zeros(1, 4, 16))
    + self.positions = nn.Parameter(torch.zeros(1, 8, 16))
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.cause import lengths, mismatch
from attnscope.crashes.lookup import Table, looked_up, observed
from attnscope.crashes.names import Env
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS115"
_LIMITS = ("block", "ctx", "context", "max", "len", "window", "size", "position")


def diagnose(scene: Scene) -> Diagnostic | None:
    return _embedding(scene) or _clipped(scene) or _short(scene) or _asserted(scene)


def _embedding(scene: Scene) -> Diagnostic | None:
    found = looked_up(scene) if isinstance(scene.error, IndexError) else None
    if found is None or not _position(scene, found):
        return None
    words, rows, seen = found.words, found.rows, observed(scene)
    labels = scene.set_at(found.layer, f"`{words.split('.')[-1]}` has {rows} positions, 0 to {rows - 1}")
    made = [link for link in scene.history(found.node) if link.kind == "def"]
    labels += [scene.label(link.node, f"`{link.name}` is made here") for link in made[:1]]
    needed = f" of at least {seen[1] + 1} rows" if seen else ""
    return scene.finding(
        CODE,
        f"{f'position {seen[1]}' if seen else 'a position'} is beyond the {rows} positions of `{words}`",
        label=f"looked up here: {seen[0]} to {seen[1]}" if seen else "looked up here",
        labels=labels,
        help=f"give at most {rows} tokens, or make `{words}` a table{needed}",
    )


def _position(scene: Scene, found: Table) -> bool:
    """Whether indices were counted out (`arange`) and not given as token ids."""
    counted = ("arange", "range", "cumsum", "linspace")
    if any(link.name in counted for link in scene.history(found.node)):
        return True
    if any(isinstance(node, ast.Attribute) and node.attr == "arange" for node in ast.walk(found.node)):
        return True
    words = found.words.rsplit(".", 1)[-1].lower()
    return "pos" in words or words in ("wpe", "rel")


def _slices(scene: Scene, root: ast.AST) -> list[tuple[ast.Subscript, Env]]:
    """The subscripts in an expression, then those in the making of what it reads."""
    places = [(node, scene.env) for node in ast.walk(root)]
    for node, _ in list(places):
        if isinstance(node, ast.Name | ast.Call) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            for link in scene.history(node):
                made = link.kind == "def" and isinstance(link.node, ast.Assign)
                inner = link.node.value if made else link.node  # type: ignore[attr-defined]
                places += [(one, link.env) for one in ast.walk(inner)]
    return [
        (node, env)
        for node, env in places[:600]
        if isinstance(node, ast.Subscript) and (isinstance(node.ctx, ast.Load) or node is root)
    ]


def _beyond(owner: Any, index: Any) -> tuple[int, int, int] | None:
    """(axis, its length, the length that was asked for) of a slice that asks for more than there is."""
    parts = index if isinstance(index, tuple) else (index,)
    axis = 0
    for part in parts:
        if part is Ellipsis:
            axis = owner.dim() - (len(parts) - parts.index(Ellipsis) - 1)
        elif part is not None:
            if axis >= owner.dim():
                return None
            length = int(owner.shape[axis])
            if isinstance(part, slice) and type(part.stop) is int and part.stop > length:
                return axis, length, part.stop
            axis += 1
    return None


def _clipped(scene: Scene) -> Diagnostic | None:
    """A slice that stops short, in the failing expression or in the making of what it reads."""
    op = scene.op
    if op is None or not isinstance(scene.error, RuntimeError | IndexError | AssertionError):
        return None
    for node, env in _slices(scene, op.node) if op.name not in ("view", "reshape", "unflatten") else ():
        owner = scene.value(node.value, env)
        found = _beyond(owner, scene.value(node.slice, env)) if is_tensor(owner) else None
        if found is None:
            continue
        axis, length, asked = found
        labels = []
        if not any(node is inner for inner in ast.walk(op.node)):
            text = f"`{scene.text(node, 50)}` stops at {length}, where {asked} were asked for"
            labels.append(scene.label(node, text))
        links = scene.history(node.value, env)
        link = next((one for one in links if one.kind in ("def", "attribute")), None)
        if link is not None:
            text = f"`{link.name}` {sizes(owner.shape)} is made here"
            labels += (
                scene.set_at(link.node, text) if link.kind == "attribute" else [scene.label(link.node, text)]
            )
        return _report(scene, scene.text(node.value), owner, axis, asked, labels)
    return None


def _report(scene: Scene, words: str, table: Any, axis: int, tokens: int, labels: list[Label]) -> Diagnostic:
    have = int(table.shape[axis])
    return scene.finding(
        CODE,
        f"{tokens} tokens are more than the {have} that `{words}` {sizes(table.shape)} has on axis {axis}",
        label=f"`{words}` ends at {have}",
        labels=labels,
        help=f"give at most {have} tokens, or make `{words}` for {tokens} and more",
    )


def _short(scene: Scene) -> Diagnostic | None:
    """`x + self.positions`, where the table as a whole has fewer rows than there are tokens."""
    op = scene.op
    if op is None or op.name not in ("add", "mul", "sub", "masked_fill"):
        return None
    operands = [(node, value) for node, value in op.inputs if is_tensor(value)]
    axis = mismatch(*(value.shape for _, value in operands))
    tables = [(n, v) for n, v in operands if isinstance(n, ast.Attribute)]
    if axis is None or len(tables) != 1 or len(operands) != 2 or not isinstance(scene.error, RuntimeError):
        return None
    node, table = tables[0]
    other = next(value for n, value in operands if n is not node)
    if min(other.dim(), table.dim()) < -axis:
        return None
    if axis == -1 and not (table.dim() > 1 and table.shape[-1] == table.shape[-2]):
        return None  # the last axis of a table holds channels, unless the table is a square mask
    tokens = int(other.shape[axis])
    if int(table.shape[axis]) >= tokens or tokens not in lengths(scene):
        return None
    words = scene.text(node)
    labels = scene.set_at(node, f"`{words.split('.')[-1]}` {sizes(table.shape)} is made here")
    return _report(scene, words, table, axis, tokens, labels)


def _asserted(scene: Scene) -> Diagnostic | None:
    """`assert t <= self.block_size`."""
    test = scene.condition
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    if not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return None
    left, right = test.left, test.comparators[0]
    asserted = scene.shot is not None and isinstance(scene.shot.statement, ast.Assert)
    if isinstance(test.ops[0], ast.GtE | ast.Gt) == asserted:
        left, right = right, left
    have, limit, words = scene.value(left), scene.value(right), scene.text(right)
    if type(have) is not int or type(limit) is not int or have < limit:
        return None
    if not any(part in words.lower() for part in _LIMITS):
        return None
    name = words.rsplit(".", 1)[-1]
    return scene.finding(
        CODE,
        f"`{scene.text(left)}` {have} is more than `{words}` {limit}",
        label="refused here",
        labels=scene.set_at(right, f"`{name}` {limit} is set here"),
        help=f"give at most {limit} tokens, or make the module with a larger `{name}`",
    )
