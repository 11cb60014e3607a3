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

from attnscope.crashes.names import Env
from attnscope.crashes.scene import Op, Scene, sizes
from attnscope.crashes.suspects import lengths, mismatch
from attnscope.crashes.syntax import guards
from attnscope.crashes.values import is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS115"


def diagnose(scene: Scene) -> Diagnostic | None:
    return _embedding(scene) or _clipped(scene) or _short(scene) or _asserted(scene)


def table(scene: Scene, op: Op) -> tuple[str, int, Any, ast.expr] | None:
    """(words, rows, layer, the indices' node) of a failing embedding lookup."""
    if is_module(op.callee) and type(op.callee).__name__ == "Embedding" and op.inputs:
        rows = read(op.callee, "num_embeddings")
        func = op.node.func if isinstance(op.node, ast.Call) else None
        if type(rows) is int:
            return scene.text(func), rows, func, op.inputs[0][0]
    if op.name == "embedding" and len(op.inputs) > 1 and is_tensor(op.inputs[1][1]):
        return scene.text(op.inputs[1][0]), int(op.inputs[1][1].shape[0]), op.inputs[1][0], op.inputs[0][0]
    return None


def observed(scene: Scene) -> tuple[int, int] | None:
    """The least and the greatest index that PyTorch was given, read from its own frame."""
    import torch

    indices = scene.torch_frame.get("input")
    if type(indices) is not torch.Tensor or indices.numel() == 0 or indices.device.type == "meta":
        return None
    if indices.is_floating_point() or indices.numel() > 10_000_000:
        return None
    return int(indices.min()), int(indices.max())


def counts_positions(scene: Scene, node: ast.AST) -> bool:
    """Whether indices were counted out (`arange`) and not given as token ids."""
    return any(link.name in ("arange", "range", "cumsum", "linspace") for link in scene.history(node)) or any(
        isinstance(n, ast.Attribute) and n.attr == "arange" for n in ast.walk(node)
    )


def _embedding(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, IndexError) or scene.op is None:
        return None
    found = table(scene, scene.op)
    if found is None or not _position(scene, found):
        return None
    words, rows, layer, node = found
    seen = observed(scene)
    last = seen[1] if seen else None
    reached = f"position {last}" if last is not None else "a position"
    labels: list[Label] = []
    if isinstance(layer, ast.Attribute):
        setting = scene.setting(layer.attr)
        if setting is not None:
            labels.append(
                scene.label(setting.target, f"`{layer.attr}` has {rows} positions, 0 to {rows - 1}")
            )
    for link in scene.history(node):
        if link.kind == "def":
            labels.append(scene.label(link.node, f"`{link.name}` is made here"))
            break
    needed = f" of at least {last + 1} rows" if last is not None else ""
    return scene.finding(
        CODE,
        f"{reached} is beyond the {rows} positions of `{words}`",
        label=f"looked up here: {seen[0]} to {seen[1]}" if seen else "looked up here",
        labels=labels,
        help=f"give at most {rows} tokens, or make `{words}` a table{needed}",
    )


def _position(scene: Scene, found: tuple[str, int, Any, ast.expr]) -> bool:
    words = found[0].rsplit(".", 1)[-1].lower()
    return counts_positions(scene, found[3]) or "pos" in words or words in ("wpe", "rel")


def clipped(scene: Scene, root: ast.AST | None) -> tuple[ast.Subscript, Any, int, int, int, Env] | None:
    """A slice in the making of `root` that asks for more than its table has.

    (the subscript, the table's twin, the axis, its length, the length that was asked for, where)
    """
    if root is None:
        return None
    places: list[tuple[ast.AST, Env]] = [(node, scene.env) for node in ast.walk(root)]
    for node in ast.walk(root):
        if isinstance(node, ast.Name | ast.Call) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            for link in scene.history(node):
                inner = (
                    link.node.value if link.kind == "def" and isinstance(link.node, ast.Assign) else link.node
                )
                places += [(one, link.env) for one in ast.walk(inner)]
    for node, env in places[:600]:
        if not isinstance(node, ast.Subscript) or (isinstance(node.ctx, ast.Store) and node is not root):
            continue
        owner = scene.value(node.value, env)
        if not is_tensor(owner):
            continue
        index = scene.value(node.slice, env)
        parts = index if isinstance(index, tuple) else (index,)
        axis = 0
        for part in parts:
            if part is None:
                continue
            if part is Ellipsis:
                axis = owner.dim() - (len(parts) - parts.index(Ellipsis) - 1)
                continue
            if axis >= owner.dim():
                break
            if isinstance(part, slice):
                length = int(owner.shape[axis])
                if type(part.stop) is int and part.stop > length:
                    return node, owner, axis, length, part.stop, env
            axis += 1
    return None


def _clipped(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError | IndexError | AssertionError) or scene.op is None:
        return None
    if scene.op.name in ("view", "reshape", "unflatten"):
        return None  # a view fails by its own sizes
    found = clipped(scene, scene.op.node)
    if found is None:
        return None
    node, owner, axis, length, asked, env = found
    words = scene.text(node.value)
    labels: list[Label] = []
    if not any(node is inner for inner in ast.walk(scene.op.node)):
        labels.append(
            scene.label(node, f"`{scene.text(node, 50)}` stops at {length}, where {asked} were asked for")
        )
    for link in scene.history(node.value, env):
        if link.kind == "attribute":
            setting = scene.setting(link.name)
            if setting is not None:
                labels.append(scene.label(setting.target, f"`{link.name}` {sizes(owner.shape)} is made here"))
            break
        if link.kind == "def":
            labels.append(scene.label(link.node, f"`{link.name}` {sizes(owner.shape)} is made here"))
            break
    return scene.finding(
        CODE,
        f"{asked} tokens are more than the {length} that `{words}` {sizes(owner.shape)} has on axis {axis}",
        label=f"`{words}` ends at {length}",
        labels=labels,
        help=f"give at most {length} tokens, or make `{words}` for {asked} and more",
    )


def _short(scene: Scene) -> Diagnostic | None:
    """`x + self.positions`, where the table as a whole has fewer rows than there are tokens."""
    op = scene.op
    if (
        op is None
        or op.name not in ("add", "mul", "sub", "masked_fill")
        or not isinstance(scene.error, RuntimeError)
    ):
        return None
    operands = [(node, value) for node, value in op.inputs if is_tensor(value)]
    axis = mismatch(*(value.shape for _, value in operands))
    tables = [(n, v) for n, v in operands if isinstance(n, ast.Attribute) and v.dim() >= -(axis or 0)]
    if axis is None or len(tables) != 1 or len(operands) != 2:
        return None
    node, table_value = tables[0]
    other = next(value for n, value in operands if n is not node)
    if other.dim() < -axis:
        return None
    shape = tuple(table_value.shape)
    if axis == -1 and not (len(shape) > 1 and shape[-1] == shape[-2]):
        return None  # the last axis of a table holds channels, unless the table is a square mask
    have, tokens = int(table_value.shape[axis]), int(other.shape[axis])
    if have >= tokens or tokens not in lengths(scene):
        return None
    labels: list[Label] = []
    setting = scene.setting(node.attr) if isinstance(node, ast.Attribute) else None
    if setting is not None:
        labels.append(
            scene.label(setting.target, f"`{setting.name}` {sizes(table_value.shape)} is made here")
        )
    words = scene.text(node)
    return scene.finding(
        CODE,
        f"{tokens} tokens are more than the {have} that `{words}` "
        f"{sizes(table_value.shape)} has on axis {axis}",
        label=f"`{words}` ends at {have}",
        labels=labels,
        help=f"give at most {have} tokens, or make `{words}` for {tokens} and more",
    )


def _asserted(scene: Scene) -> Diagnostic | None:
    """`assert t <= self.block_size`."""
    if scene.shot is None or scene.shot.source is None:
        return None
    statement = scene.shot.statement
    test: ast.AST | None = None
    if isinstance(statement, ast.Assert):
        test = statement.test
    elif isinstance(statement, ast.Raise):
        around = guards(scene.shot.source, statement)
        test = around[0].test if around and isinstance(around[0], ast.If) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.GtE | ast.Gt) == isinstance(statement, ast.Assert):
        left, right = right, left
    have, limit = scene.value(left), scene.value(right)
    if type(have) is not int or type(limit) is not int or have < limit:
        return None
    if not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return None
    words = scene.text(right).lower()
    if not any(
        part in words for part in ("block", "ctx", "context", "max", "len", "window", "size", "position")
    ):
        return None
    labels: list[Label] = []
    if isinstance(right, ast.Attribute):
        setting = scene.setting(right.attr)
        if setting is not None:
            labels.append(scene.label(setting.target, f"`{right.attr}` {limit} is set here"))
    return scene.finding(
        CODE,
        f"`{scene.text(left)}` {have} is more than `{scene.text(right)}` {limit}",
        label="refused here",
        labels=labels,
        help=f"give at most {limit} tokens, or make the module with "
        f"a larger `{scene.text(right).rsplit('.', 1)[-1]}`",
    )
