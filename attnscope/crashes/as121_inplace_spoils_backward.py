"""AS121: an in-place write changed a value that the backward pass needs.

Many operations keep their input or their output for the gradient: softmax, exp, sqrt and sigmoid keep their
output, products keep their factors. Written over, the gradient would be wrong, and autograd refuses.

It is bad because the forward pass is fine, and the error names no line of the module.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(16, 16)

        def forward(self, x):
            weights = (self.query(x) @ x.transpose(-2, -1)).softmax(-1)
            weights.mul_(0.5)
            return weights @ x

Cure: write out of place: `weights = weights * 0.5`.

    - weights.mul_(0.5)
    + weights = weights * 0.5
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.syntax import is_before
from attnscope.crashes.writes import out_of_place, target
from attnscope.diagnostic import Diagnostic, Label
from attnscope.schema import Step

CODE = "AS121"
_SIZE = re.compile(r"Tensor \[([\d, ]*)\]")
_MAKER = re.compile(r"output \d+ of (\w+?)(?:Backward\d*)?\b")
_SETUP = ("__init__", "reset_parameters", "_init_weights", "init_weights")
_ALIASES = {"unsafeview": ("matmul", "@"), "bmm": ("@",), "mm": ("@",), "addmm": ("(",)}


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError) or "modified by an inplace operation" not in scene.words:
        return None
    views = scene.views() or ([scene] if scene.klass is not None and scene.file is not None else [])
    findings = [found for view in views if (found := _look(view)) is not None]
    return max(findings, key=lambda one: one[1])[0] if findings else None


def _look(scene: Scene) -> tuple[Diagnostic, float] | None:
    """The best guess within one class, and how well it fits."""
    found, output = _SIZE.search(scene.words), _MAKER.search(scene.words)
    shape = tuple(int(n) for n in found[1].split(",") if n.strip()) if found else None
    maker = output[1].lower() if output else ""
    fits = {node: _fits(scene, node, maker, shape) for node in dict.fromkeys(_writes(scene))}
    if not fits:
        return None
    node, *others = sorted(fits, key=lambda one: -fits[one])
    written = target(node)
    assert written is not None
    name, made = scene.text(written, 50), _made_before(scene, node, written)
    labels: list[Label] = []
    if made is not None:
        labels.append(scene.label(made, f"`{name}` is made here" + (f", by `{maker}`" if maker else "")))
    same = [one for one in others[:2] if fits[one] >= fits[node]]
    labels += [scene.label(one, "this is written in place as well") for one in same]
    shown = f" {sizes(shape)}" if shape else ""
    finding = scene.finding(
        CODE,
        f"`{name}` is written in place, and the backward pass needs what it was",
        label="written in place here",
        labels=labels,
        notes=[f"the value that was changed was the output of `{maker}`{shown}" if maker else scene.words],
        help=f"write out of place: {out_of_place(scene, node, written)}",
        at=scene.head(node),
    )
    return finding, fits[node]


def _writes(scene: Scene) -> Iterator[ast.AST]:
    """The in-place steps of the class (and of the helpers beside it), `forward` first."""
    assert scene.klass is not None and scene.file is not None
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    own = [one for one in scene.klass.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    own.sort(key=lambda one: one.name != "forward")
    beside = [one for one in scene.file.tree.body if isinstance(one, kinds) and one is not scene.klass]
    for node in (node for body in (*own, *beside) for node in ast.walk(body)):
        function = scene.file.function_of(node) if target(node) is not None else None
        if function is None or function.name in _SETUP:
            continue
        number = isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant)
        counts = number and isinstance(node.op, ast.Add) and isinstance(node.value.value, int)  # type: ignore[attr-defined]
        # `i += 1`: a number, no tensor, unless a recorded step wrote into one there.
        if not counts or any(step.span.file == scene.file.name for step in _steps(scene, node)):
            yield node


def _steps(scene: Scene, node: ast.AST) -> list[Step]:
    """The recorded steps that wrote into a tensor on a node's line."""
    line = scene.head(node).line
    return [step for step in scene.crash.steps if step.memory == "in-place" and step.span.line == line]


def _made_before(scene: Scene, node: ast.AST, written: ast.expr) -> ast.Assign | None:
    """The last assignment of what is written."""
    function = scene.file.function_of(node) if scene.file is not None else None
    base = scene.text(written).split("[")[0].split(".")[0]
    made = [
        one
        for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Assign)
        and is_before(one, node)
        and any(isinstance(n, ast.Name) and n.id == base for t in one.targets for n in ast.walk(t))
    ]
    return max(made, key=lambda one: one.lineno, default=None)


def _fits(scene: Scene, node: ast.AST, maker: str, shape: tuple[int, ...] | None) -> float:
    """How well a write fits what PyTorch says of the value: who made it, and its shape."""
    written = target(node)
    assert written is not None
    made, plain = _made_before(scene, node, written), maker.lstrip("_")
    text = scene.text(made, 400).lower() if made is not None else ""
    score = 2.0 * (plain != "" and any(word in text for word in (plain, *_ALIASES.get(plain, ()))))
    # The step itself can be what is named: `s.sub_(…)` on a kept value is "output 0 of Sub".
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        score += 1.5 * (node.func.attr.rstrip("_").replace("_", "") == plain)
    if isinstance(node, ast.AugAssign):
        score += 1.5 * (plain in type(node.op).__name__.lower())
    if isinstance(node, ast.Subscript):
        score += 2.0 * (plain in ("copyslices", "asstridedbackward"))
    for step in _steps(scene, node):
        seen = shape is not None and any(info.shape == shape for info in (*step.outputs, *step.inputs))
        score += 1.5 if seen else 0.5
    return score
