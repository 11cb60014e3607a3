"""AS135: the equation of an `einsum` does not fit its operands.

Each operand needs as many letters as it has axes, and a letter stands for one size in all of them.

It is bad because the letters carry the meaning, and one exchanged letter that happens to fit computes
something else.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            return torch.einsum("bthd,bshd->bhts", x, x)

Cure: write the axes that the operands have.

    - return torch.einsum("bthd,bshd->bhts", x, x)
    + return torch.einsum("btc,bsc->bts", x, x)
"""

from __future__ import annotations

import ast

from attnscope.crashes.cause import causes
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic

CODE = "AS135"


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    if (
        op is None
        or op.name != "einsum"
        or not isinstance(scene.error, RuntimeError | ValueError)
        or not op.inputs
    ):
        return None
    equation = op.inputs[0][1]
    operands: list[tuple[ast.AST, object]] = [(n, v) for n, v in op.inputs[1:] if is_tensor(v)]
    if type(equation) is not str or not operands:
        return None
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, tuple[int, str]] = {}
    reason, cure = "", "write one letter for each axis, and one letter for each size"
    for term, (node, value) in zip(terms, operands, strict=False):
        shape = [int(n) for n in value.shape]  # type: ignore[attr-defined]
        text = scene.text(node, 40)
        if "." in term:
            continue
        if len(term) != len(shape):
            reason = f"`{term}` names {len(term)} axes, `{text}` {scene.shape(value, node)} has {len(shape)}"
            cure = f"write {len(shape)} letters for `{text}`, or bring it into the layout `{term}`"
            break
        for letter, size in zip(term, shape, strict=True):
            if letter in sizes and sizes[letter][0] != size and 1 not in (size, sizes[letter][0]):
                reason = f"`{letter}` is {sizes[letter][0]} in `{sizes[letter][1]}` and {size} in `{text}`"
                cure = (
                    f"use two letters, or give `{text}` and `{sizes[letter][1]}` the same size on that axis"
                )
                break
            sizes.setdefault(letter, (size, text))
        if reason:
            break
    if not reason and len(terms) != len(op.inputs) - 1:
        reason = f"the equation has {len(terms)} terms for {len(op.inputs) - 1} operands"
        cure = "write one term for each operand"
    return scene.finding(
        CODE,
        f"the equation `{equation[:60]}` does not fit: {reason or scene.words[:120]}",
        label=reason,
        labels=causes(scene, operands),
        notes=[scene.show(node, value) for node, value in operands],
        help=cure,
    )
