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

from attnscope.crashes.as101_missing_attribute import _own
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.suspects import defined, lengths, oddities, source, trail, unique
from attnscope.crashes.values import is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS107"
VIEWS = ("view", "reshape", "unflatten", "view_as", "reshape_as")


def target(scene: Scene) -> tuple[ast.expr, Any, list[ast.expr], list[Any]] | None:
    """(tensor's node, its twin, the size expressions, their values) of the `view` that failed."""
    op = scene.op
    if op is None or op.name not in ("view", "reshape") or not op.inputs or not is_tensor(op.inputs[0][1]):
        return None
    node, tensor = op.inputs[0]
    rest = list(op.inputs[1:])
    if not rest and "shape" in op.keywords:
        rest = [op.keywords["shape"]]
    if len(rest) == 1 and isinstance(rest[0][1], tuple | list):
        inner = rest[0][0]
        values = list(rest[0][1])
        if isinstance(inner, ast.Tuple | ast.List) and len(inner.elts) == len(values):
            return node, tensor, list(inner.elts), values
        return node, tensor, [inner] * len(values), values
    flat: list[tuple[ast.expr, Any]] = []
    for one, value in rest:  # `x.view(*x.shape[:2], H, D)`
        if isinstance(value, tuple | list):
            flat += [(one, item) for item in value]
        else:
            flat.append((one, value))
    return node, tensor, [one for one, _ in flat], [value for _, value in flat]


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError | ValueError):
        return None
    found = target(scene)
    if found is None:
        return None
    node, tensor, nodes, wanted = found
    if not wanted or any(type(size) is not int for size in wanted):
        return None
    have, known = tensor.numel(), math.prod(size for size in wanted if size != -1)
    open_axes = wanted.count(-1)
    if open_axes > 1 or (known == have and not open_axes) or (open_axes and known and have % known == 0):
        return None
    if open_axes:
        message = f"{have} elements cannot be {sizes(wanted)}: {have} is no multiple of {known}"
    else:
        message = f"{have} elements cannot be {sizes(wanted)}: that is {known}"
    made = defined(scene, node)
    labels: list[Label] = oddities(scene, node)
    labels += [made] if made is not None else []
    labels += trail(scene, node, {label.span.line for label in labels})
    help_text, wrong = _cure(scene, node, tensor, nodes, wanted, have)
    origin = _origin(scene, node, tensor, nodes, wanted, wrong)
    if origin is not None:
        labels.insert(0, origin[0])
        help_text = origin[1]
    if wrong is not None:
        size = defined(scene, wrong) if isinstance(wrong, ast.Name) else None
        if size is not None:
            value = scene.value(wrong)
            labels.insert(2, Label(size.span, f"`{scene.text(wrong)}` is {value} since here"))
    return scene.finding(
        CODE,
        message,
        label=f"`{scene.text(node, 50)}` is {scene.shape(tensor, node)}",
        labels=unique(labels),
        help=help_text,
    )


def _origin(
    scene: Scene,
    node: ast.expr,
    tensor: Any,
    nodes: list[ast.expr],
    wanted: list[int],
    wrong: ast.expr | None,
) -> tuple[Label, str] | None:
    """Where the wrong length came from, if the tensor has that of another argument than the view asks for."""
    if wrong is None:
        return None
    asked = wanted[next(i for i, one in enumerate(nodes) if one is wrong)]
    others = [int(n) for n in tensor.shape if int(n) in lengths(scene) and int(n) != asked]
    if asked not in lengths(scene) or not others:
        return None
    found = source(scene, node, others[0])
    if found is None:
        return None
    label, made, argument = found
    return (
        label,
        f"`{made}` is made from `{argument}`, whose length is {others[0]}, and the view asks for {asked}",
    )


def _cure(
    scene: Scene, node: ast.expr, tensor: Any, nodes: list[ast.expr], wanted: list[int], have: int
) -> tuple[str, ast.expr | None]:
    name = scene.text(node, 50)
    shape = [int(n) for n in tensor.shape]
    without = [size for size in wanted if size != 1]
    if wanted.count(1) == 1 and len(without) == len(shape):
        axis = wanted.index(1)
        differ = [i for i, (a, b) in enumerate(zip(without, shape, strict=True)) if a != b]
        if len(differ) == 1:
            spot = differ[0] + (differ[0] >= axis)
            return (
                f"axis {spot} has to be {shape[differ[0]]}, not `{scene.text(nodes[spot])}` {wanted[spot]}; "
                f"`{name}.unsqueeze({axis})` keeps all the sizes",
                nodes[spot],
            )
    best: tuple[float, int, int, str] | None = None
    for axis, size in enumerate(wanted):
        others = math.prod(s for i, s in enumerate(wanted) if i != axis and s != -1)
        if size == -1 or others == 0 or have % others or -1 in wanted:
            continue
        needed = have // others
        expression = _named(scene, needed, nodes, tensor, name)
        score = (2.0 if expression else 0.0) + axis / 10 + (1.0 if needed in shape else 0.0)
        if axis < len(shape) and axis < 2 and size == shape[axis]:
            score -= 3.0  # the leading axes, B and T, are as they are
        if best is None or score > best[0]:
            best = (score, axis, needed, expression)
    if best is not None:
        _, axis, needed, expression = best
        wrong = nodes[axis]
        instead = f"`{expression}` ({needed})" if expression else f"{needed}"
        return f"axis {axis} has to be {instead}, not `{scene.text(wrong)}` ({wanted[axis]})", wrong
    return f"`{name}` has the sizes {sizes(shape)}: view it with sizes whose product is {have}", None


def _named(scene: Scene, needed: int, nodes: list[ast.expr], tensor: Any, name: str) -> str:
    """An expression of the user's that is worth `needed`: an attribute, a local, a size of the tensor."""
    used = {scene.text(node) for node in nodes}
    for key, value in _own(scene.owner).items() if scene.owner is not None else ():
        if type(value) is int and value == needed and f"self.{key}" not in used:
            return f"self.{key}"
    if scene.reader is not None:
        for key, value in scene.reader.body.locals.items():
            if type(value) is int and value == needed and key not in used and key != "_":
                return key
    shape = [int(n) for n in tensor.shape]
    if needed in shape and name.isidentifier():
        return f"{name}.size({shape.index(needed)})"
    return ""
