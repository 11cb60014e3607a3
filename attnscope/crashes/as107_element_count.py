"""AS107: a `view` or `reshape` asks for another number of elements than there are.

A view keeps every element and only counts them out anew, so the product of the new sizes must be the number
of elements. Either one of the sizes is the wrong one (the input's width where the embedding's was meant), or
the tensor is not the one that was meant.

It is bad because a size that happens to fit would have passed and mixed the elements silently.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_dim = 20
            self.query = nn.Linear(16, 20)

        def forward(self, x):
            b, t, width = x.shape
            q = self.query(x)
            return q.view(b, t, width)

Cure: use the size that the tensor has (`self.embed_dim`), or -1 for the one that follows from the others.

    - return q.view(b, t, width)
    + return q.view(b, t, self.embed_dim)
"""

from __future__ import annotations

import ast
import math
from typing import Any

from attnscope.crashes.cause import defined, lengths, oddities, source, trail, unique
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.values import held
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS107"


def diagnose(scene: Scene) -> Diagnostic | None:
    op = scene.op
    asked = op.asked() if op is not None and op.name in ("view", "reshape") else None
    if asked is None or not isinstance(scene.error, RuntimeError | ValueError):
        return None
    node, tensor, nodes, wanted = asked
    if not wanted or any(type(size) is not int for size in wanted):
        return None
    have, known = tensor.numel(), math.prod(size for size in wanted if size != -1)
    open_axes = wanted.count(-1)
    if open_axes > 1 or (known == have and not open_axes) or (open_axes and known and have % known == 0):
        return None
    reason = f"{have} is no multiple of {known}" if open_axes else f"that is {known}"
    labels: list[Label] = [*oddities(scene, node), *defined(scene, node)]
    labels += trail(scene, node, {label.span.line for label in labels})
    cure, axis = _cure(scene, node, tensor, nodes, wanted)
    wrong = nodes[axis] if axis is not None else None
    if wrong is not None and axis is not None:
        origin = _origin(scene, node, tensor, wanted[axis])
        if origin is not None:
            labels.insert(0, origin[0])
            cure = origin[1]
        for size in defined(scene, wrong) if isinstance(wrong, ast.Name) else ():
            labels.insert(2, Label(size.span, f"`{scene.text(wrong)}` is {scene.value(wrong)} since here"))
    return scene.finding(
        CODE,
        f"{have} elements cannot be {sizes(wanted)}: {reason}",
        label=f"`{scene.text(node, 50)}` is {scene.shape(tensor, node)}",
        labels=unique(labels),
        help=cure,
    )


def _origin(scene: Scene, node: ast.expr, tensor: Any, asked: int) -> tuple[Label, str] | None:
    """Where the wrong length came from, if the tensor has that of another argument than the view asks for."""
    others = [int(n) for n in tensor.shape if int(n) in lengths(scene) and int(n) != asked]
    found = source(scene, node, others[0]) if others and asked in lengths(scene) else None
    if found is None:
        return None
    label, made, argument = found
    return (
        label,
        f"`{made}` is made from `{argument}`, whose length is {others[0]}, and the view asks for {asked}",
    )


def _cure(
    scene: Scene, node: ast.expr, tensor: Any, nodes: list[ast.expr], wanted: list[int]
) -> tuple[str, int | None]:
    """What one size has to be for the others to stay, and which."""
    name, have, shape = scene.text(node, 50), tensor.numel(), [int(n) for n in tensor.shape]
    without = [size for size in wanted if size != 1]
    if wanted.count(1) == 1 and len(without) == len(shape):
        axis = wanted.index(1)
        differ = [i for i, (a, b) in enumerate(zip(without, shape, strict=True)) if a != b]
        if len(differ) == 1:
            spot = differ[0] + (differ[0] >= axis)
            return (
                f"axis {spot} has to be {shape[differ[0]]}, not `{scene.text(nodes[spot])}` {wanted[spot]}; "
                f"`{name}.unsqueeze({axis})` keeps all the sizes",
                spot,
            )
    best: tuple[float, int, str] | None = None
    for axis, size in enumerate(wanted):
        others = math.prod(s for i, s in enumerate(wanted) if i != axis)
        if -1 in wanted or others == 0 or have % others:
            continue
        needed = have // others
        words = _named(scene, needed, nodes, shape, name)
        score = (2.0 if words else 0.0) + axis / 10 + (1.0 if needed in shape else 0.0)
        if axis < min(len(shape), 2) and size == shape[axis]:
            score -= 3.0  # the leading axes, B and T, are as they are
        if best is None or score > best[0]:
            best = (score, axis, f"`{words}` ({needed})" if words else f"{needed}")
    if best is None:
        return f"`{name}` has the sizes {sizes(shape)}: view it with sizes whose product is {have}", None
    _, axis, instead = best
    return f"axis {axis} has to be {instead}, not `{scene.text(nodes[axis])}` ({wanted[axis]})", axis


def _named(scene: Scene, needed: int, nodes: list[ast.expr], shape: list[int], name: str) -> str:
    """An expression of the user's that is worth `needed`: an attribute, a local, a size of the tensor."""
    used = {scene.text(node) for node in nodes} | {"_"}
    known = (
        {f"self.{key}": value for key, value in held(scene.owner).items()} if scene.owner is not None else {}
    )
    known |= scene.reader.body.locals if scene.reader is not None else {}
    for words, value in known.items():
        if type(value) is int and value == needed and words not in used:
            return words
    return f"{name}.size({shape.index(needed)})" if needed in shape and name.isidentifier() else ""
