"""An embedding lookup that failed: its table, and the indices that it was given."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import torch
from torch import nn

from attnscope.crashes.scene import Scene
from attnscope.crashes.values import is_tensor, read


@dataclass(frozen=True)
class Table:
    """`layer` is the table's expression, `words` its text; `node` gives the indices."""

    words: str
    rows: int
    layer: ast.expr | None
    node: ast.expr


def looked_up(scene: Scene) -> Table | None:
    """The table of a failing embedding lookup."""
    op = scene.op
    if op is None or not op.inputs:
        return None
    if isinstance(op.callee, nn.Embedding):
        rows = read(op.callee, "num_embeddings")
        return Table(scene.text(op.words), rows, op.words, op.inputs[0][0]) if type(rows) is int else None
    if op.name == "embedding" and len(op.inputs) > 1 and is_tensor(op.inputs[1][1]):
        node, weight = op.inputs[1]
        return Table(scene.text(node), int(weight.shape[0]), node, op.inputs[0][0])
    return None


def observed(scene: Scene) -> tuple[int, int] | None:
    """The least and the greatest index that PyTorch was given, read from its own frame."""
    indices = scene.torch_frame.get("input")
    if type(indices) is not torch.Tensor or indices.numel() == 0 or indices.device.type == "meta":
        return None
    if indices.is_floating_point() or indices.numel() > 10_000_000:
        return None
    return int(indices.min()), int(indices.max())
