"""A dozen small edits of an operand, each tried on what was recorded: the first that fits is the help."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from attnscope.crashes.scene import Scene
from attnscope.crashes.values import is_tensor
from attnscope.ops.outcomes import Misfit, broadcast


@dataclass(frozen=True)
class Edit:
    """`words` with the operand's own text at `{}`; `why` says what its shape, at `{}`, lacks."""

    words: str
    apply: Callable[[Any], Any]
    ranks: tuple[int, ...]
    why: str = ""


_ANY = tuple(range(2, 8))
TURN = Edit("{}.transpose(-2, -1)", lambda t: t.transpose(-2, -1), _ANY, "{} has queries and keys swapped")
HEADS = Edit("{}.transpose(1, 2)", lambda t: t.transpose(1, 2), (4,), "{} has its axes 1 and 2 swapped")
BATCH = Edit("{}.transpose(0, 1)", lambda t: t.transpose(0, 1), (4,), "{} has batch and heads swapped")
TURNS = (
    TURN,
    HEADS,
    Edit("{}.permute(0, 2, 3, 1)", lambda t: t.permute(0, 2, 3, 1), (4,)),
    Edit("{}.transpose(0, 1)", lambda t: t.transpose(0, 1), (3,)),
)


def _swap(i: int, j: int) -> Edit:
    why = f"swap the axes {i} and {j} of one of them"
    return Edit(f"{{}}.transpose({i}, {j})", lambda t: t.transpose(i, j), tuple(range(j + 1, 8)), why)


def _axis(i: int) -> Edit:
    return Edit(f"{{}}.unsqueeze({i})", lambda t: t.unsqueeze(i), tuple(range(i, 8)), "{} lacks an axis")


SWAPS = tuple(_swap(i, j) for i in range(6) for j in range(i + 1, 6))
AXES = tuple(_axis(i) for i in range(6))
MERGES = (
    Edit("{}.flatten(-2)", lambda t: t.flatten(-2), tuple(range(3, 8)), "merge the last two axes"),
    Edit("{}.transpose(1, 2).flatten(2)", lambda t: t.transpose(1, 2).flatten(2), (4,), "merge the heads"),
)


def fitting(value: Any, fits: Callable[[Any], bool], edits: Sequence[Edit]) -> Iterator[Edit]:
    """The edits after which the operand fits, in the order of the list."""
    for edit in edits:
        if value.dim() in edit.ranks and fits(edit.apply(value)):
            yield edit


def broadcasts(*shapes: Sequence[int]) -> bool:
    try:
        broadcast(*shapes)
    except Misfit:
        return False
    return True


def grouped(scene: Scene, node: ast.AST, limit: int = 60) -> str:
    """The operand's text, in brackets where a method is to follow an operator."""
    text = scene.text(node, limit)
    return f"({text})" if isinstance(node, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.Compare) else text


def forms(scene: Scene, node: ast.AST, value: Any) -> Iterator[tuple[str, Any]]:
    """The operand turned: first as it is written without its own transpose or permute, then as it is."""
    base, before = untransposed(scene, node)
    for one, tensor in ((base, before), (node, value)):
        if is_tensor(tensor):
            for edit in TURNS:
                if tensor.dim() in edit.ranks:
                    yield f"`{edit.words.format(grouped(scene, one))}`", edit.apply(tensor)
            if one is base and base is not node:
                yield f"`{scene.text(base)}` as it is", tensor


def untransposed(scene: Scene, node: ast.AST) -> tuple[ast.AST, Any]:
    """The operand without the transpose or permute with which it is written, and its twin (None: without)."""
    first = next(iter(scene.history(node)), None)
    if first is None or first.kind != "op" or not is_tensor(first.before):
        return node, None
    if first.name not in ("transpose", "permute", "T", "mT", "t", "swapaxes"):
        return node, None
    inner = first.node.func if isinstance(first.node, ast.Call) else first.node
    return (inner.value, first.before) if isinstance(inner, ast.Attribute) else (node, None)
