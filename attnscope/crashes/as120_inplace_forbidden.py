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

from attnscope.crashes.cause import PARTS, unique
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import is_tensor
from attnscope.crashes.writes import out_of_place, target
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS120"
_MANY = PARTS | {"hsplit", "vsplit"}


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError) or scene.crash.phase == "backward":
        return None
    words = scene.words.lower()
    if not any(
        part in words for part in ("inplace", "in-place", "single memory location", "written-to tensor")
    ):
        return None
    if "gradient computation has been modified" in words or scene.node is None:
        return None
    node: ast.AST = scene.node.value if isinstance(scene.node, ast.Expr) else scene.node
    written = target(node)
    if written is None:
        statement = scene.shot.statement if scene.shot is not None else None
        found = (
            [one for one in ast.walk(statement) if target(one) is not None] if statement is not None else []
        )
        if not found:
            return None
        node = found[0]
        written = target(node)
    assert written is not None
    name = scene.text(written, 50)
    labels: list[Label] = []
    reason, cure = (
        "autograd cannot follow this write",
        f"write out of place: {out_of_place(scene, node, written)}",
    )
    for link in scene.history(written):
        if link.kind == "def" and isinstance(link.node, ast.Assign) and not labels:
            labels.append(scene.label(link.node, f"`{link.name}` is made here"))
        if link.kind == "op" and link.name in _MANY:
            reason = f"`{name}` is one of several views that `{link.name}` gave"
            labels.append(scene.label(link.node, f"these views share memory: `{scene.text(link.node, 50)}`"))
            break
        if (
            link.kind == "op"
            and is_tensor(link.value)
            and any(
                step == 0 and size > 1
                for step, size in zip(link.value.stride(), link.value.shape, strict=True)
            )
            and is_tensor(link.before)
            and not any(
                s == 0 and n > 1 for s, n in zip(link.before.stride(), link.before.shape, strict=True)
            )
        ):
            reason = f"`{name}` was expanded: many of its elements are one place of memory"
            labels.append(scene.label(link.node, f"expanded here, by `{link.name}`"))
            cure = (
                f"write out of place: {out_of_place(scene, node, written)}, or `.clone()` what was expanded"
            )
            break
        if link.kind == "attribute":
            setting = scene.setting(link.name)
            if setting is not None:
                labels.append(scene.label(setting.target, f"`{link.name}` is set here"))
            break
    if "leaf" in words:
        reason = f"`{name}` is a leaf that requires a gradient" if "view of a leaf" not in words else (
            f"`{name}` is a view of a leaf that requires a gradient"
        )  # fmt: skip
    if "output of a function that returns multiple views" in words and "one of several" not in reason:
        reason = f"`{name}` is one of several views of one tensor"
    return scene.finding(
        CODE,
        f"`{name}` may not be written in place: {reason}",
        label="written in place here",
        labels=unique(labels),
        help=cure,
    )
