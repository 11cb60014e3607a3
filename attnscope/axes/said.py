"""What the source says of the sizes of a call: expressions, or axes of a whole shape."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from attnscope.axes.dims import Dim

Said = ast.expr | Dim | None
"""What the source says of one size: an expression, or an axis of a whole shape."""


def is_library(value: ast.expr) -> bool:
    """Whether `value.method(…)` is a function of a library (`torch.`, `F.`) rather than a method."""
    text = ast.unparse(value)
    return text in ("torch", "F", "nn.functional", "torch.nn.functional", "functional", "th", "tnf")


def is_rest(expr: Said) -> bool:
    """Whether a size is left open: `-1`."""
    return isinstance(expr, ast.UnaryOp) and isinstance(expr.operand, ast.Constant)


def is_one(expr: Said) -> bool:
    """Whether a size is the number 1 itself."""
    return isinstance(expr, ast.Constant) and expr.value == 1


def align(args: Sequence[Said], count: int) -> list[Said]:
    starred = next((i for i, arg in enumerate(args) if isinstance(arg, ast.Starred)), None)
    if starred is None:
        return list(args) if len(args) == count else [None] * count
    after = len(args) - starred - 1
    missing = count - starred - after
    if missing < 0:
        return [None] * count
    return [*args[:starred], *[None] * missing, *args[len(args) - after :]]
