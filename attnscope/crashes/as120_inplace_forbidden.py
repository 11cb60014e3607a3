"""AS120: an in-place write that PyTorch forbids.

Writing into a tensor is refused where autograd could not follow (one of several views that a `split`, `chunk`
or `unbind` gave; a leaf that requires a gradient) and where one place of memory stands for many elements (an
`expand`ed tensor).

It is bad because the same line passes in `no_grad`, and fails only in training.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x):
            q, k, v = self.qkv(x).split(16, dim=-1)
            q.mul_(0.25)
            return q @ k.transpose(-2, -1) @ v

Cure: write out of place, `q = q * 0.25`, or into a `.clone()`.

    - q.mul_(0.25)
    + q = q * 0.25
"""

from __future__ import annotations

import ast
from typing import Any

from attnscope.crashes.cause import PARTS, unique
from attnscope.crashes.history import Link
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import is_tensor
from attnscope.crashes.writes import out_of_place, target
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS120"
_WORDS = ("inplace", "in-place", "single memory location", "written-to tensor")
_MANY = PARTS | {"hsplit", "vsplit"}


def diagnose(scene: Scene) -> Diagnostic | None:
    words = scene.words.lower()
    if not isinstance(scene.error, RuntimeError) or scene.crash.phase == "backward" or scene.node is None:
        return None
    if not any(part in words for part in _WORDS) or "gradient computation has been modified" in words:
        return None
    node: ast.AST = scene.node.value if isinstance(scene.node, ast.Expr) else scene.node
    statement = scene.shot.statement if scene.shot is not None else None
    places = [node, *(ast.walk(statement) if statement is not None else ())]
    node, written = next(((one, to) for one in places if (to := target(one)) is not None), (node, None))
    if written is None:
        return None
    name, plain = scene.text(written, 50), f"write out of place: {out_of_place(scene, node, written)}"
    reason, cure, labels = _shared(scene, name, written)
    if "leaf" in words:
        view = "a view of a leaf" if "view of a leaf" in words else "a leaf"
        reason = f"`{name}` is {view} that requires a gradient"
    if "output of a function that returns multiple views" in words and "one of several" not in reason:
        reason = f"`{name}` is one of several views of one tensor"
    return scene.finding(
        CODE,
        f"`{name}` may not be written in place: {reason or 'autograd cannot follow this write'}",
        label="written in place here",
        labels=unique(labels),
        help=plain + cure,
    )


def _shared(scene: Scene, name: str, written: ast.expr) -> tuple[str, str, list[Label]]:
    """(why the memory is not the tensor's own, what may be done besides, labels)."""
    labels: list[Label] = []
    for link in scene.history(written):
        text = scene.text(link.node, 50)
        if link.kind == "def" and isinstance(link.node, ast.Assign) and not labels:
            labels.append(scene.label(link.node, f"`{link.name}` is made here"))
        elif link.kind == "op" and link.name in _MANY:
            labels.append(scene.label(link.node, f"these views share memory: `{text}`"))
            return f"`{name}` is one of several views that `{link.name}` gave", "", labels
        elif link.kind == "op" and _spread(link):
            labels.append(scene.label(link.node, f"expanded here, by `{link.name}`"))
            reason = f"`{name}` was expanded: many of its elements are one place of memory"
            return reason, ", or `.clone()` what was expanded", labels
        elif link.kind == "attribute":
            return "", "", [*labels, *scene.set_at(link.node, f"`{link.name}` is set here")]
    return "", "", labels


def _spread(link: Link) -> bool:
    """Whether an operation made many elements one place of memory."""

    def folded(value: Any) -> bool:
        return any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True))

    both = is_tensor(link.value) and is_tensor(link.before)
    return both and folded(link.value) and not folded(link.before)
