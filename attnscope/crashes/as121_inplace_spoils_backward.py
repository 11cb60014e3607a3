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

from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.syntax import is_before, methods
from attnscope.crashes.writes import out_of_place, target
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS121"
_SIZE = re.compile(r"FloatTensor \[([\d, ]*)\]|Tensor \[([\d, ]*)\]")
_MAKER = re.compile(r"output \d+ of (\w+?)(?:Backward\d*)?\b")


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, RuntimeError) or "modified by an inplace operation" not in scene.words:
        return None
    views = scene.views() or ([scene] if scene.klass is not None and scene.file is not None else [])
    findings = [found for view in views if (found := _look(view)) is not None]
    return max(findings, key=lambda one: one[1])[0] if findings else None


def _look(scene: Scene) -> tuple[Diagnostic, float] | None:
    """The best guess within one class, and how well it fits."""
    found = _SIZE.search(scene.words)
    raw = (found[1] or found[2] or "") if found else ""
    shape = tuple(int(n) for n in raw.split(",") if n.strip()) if found else None
    maker = (_MAKER.search(scene.words) or [None, ""])[1]
    writes = _writes(scene)
    if not writes:
        return None
    ranked = sorted(writes, key=lambda node: -_fits(scene, node, maker or "", shape))
    node = ranked[0]
    written = target(node)
    assert written is not None
    name = scene.text(written, 50)
    labels: list[Label] = []
    made = _made_before(scene, node, name)
    if made is not None:
        what = f", by `{maker.lower()}`" if maker else ""
        labels.append(scene.label(made, f"`{name}` is made here{what}"))
    others = [
        one
        for one in ranked[1:3]
        if _fits(scene, one, maker or "", shape) >= _fits(scene, node, maker or "", shape)
    ]
    labels += [scene.label(one, "this is written in place as well") for one in others]
    shown = f" {sizes(shape)}" if shape else ""
    notes = [f"the value that was changed was the output of `{maker.lower()}`{shown}"] if maker else []
    finding = scene.finding(
        CODE,
        f"`{name}` is written in place, and the backward pass needs what it was",
        label="written in place here",
        labels=labels,
        notes=notes or [scene.words],
        help=f"write out of place: {out_of_place(scene, node, written)}",
        at=scene.head(node),
    )
    return finding, _fits(scene, node, maker or "", shape)


def _writes(scene: Scene) -> list[ast.AST]:
    """The in-place steps of the class (and of the helpers beside it), `forward` first."""
    assert scene.klass is not None and scene.file is not None
    skipped = ("__init__", "reset_parameters", "_init_weights", "init_weights")
    own = [one for one in methods(scene.klass) if one.name not in skipped]
    own.sort(key=lambda one: one.name != "forward")
    bodies: list[ast.AST] = [*own]
    bodies += [
        one
        for one in scene.file.tree.body
        if isinstance(one, ast.FunctionDef | ast.ClassDef) and one is not scene.klass
    ]
    found: list[ast.AST] = []
    for body in bodies:
        for node in ast.walk(body):
            written = target(node)
            if written is None:
                continue
            inside = scene.file.function_of(node)
            if inside is None or inside.name in (
                "__init__",
                "reset_parameters",
                "_init_weights",
                "init_weights",
            ):
                continue
            if isinstance(node, ast.AugAssign) and _counts(node) and not _wrote(scene, node):
                continue
            found.append(node)
    return list(dict.fromkeys(found))


def _counts(node: ast.AugAssign) -> bool:
    """`i += 1`: a number, no tensor."""
    return (
        isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
        and isinstance(node.op, ast.Add)
    )


def _wrote(scene: Scene, node: ast.AugAssign) -> bool:
    """Whether a recorded step wrote into a tensor there: then the name stood for no plain number."""
    assert scene.file is not None
    span = scene.file.node_span(node)
    return any(
        step.memory == "in-place" and step.span.file == span.file and step.span.line == span.line
        for step in scene.crash.steps
    )


def _made_before(scene: Scene, node: ast.AST, name: str) -> ast.AST | None:
    assert scene.file is not None
    function = scene.file.function_of(node)
    base = name.split("[")[0].split(".")[0]
    made = [
        one
        for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Assign)
        and is_before(one, node)
        and any(isinstance(n, ast.Name) and n.id == base for t in one.targets for n in ast.walk(t))
    ]
    return max(made, key=lambda one: one.lineno) if made else None


def _fits(scene: Scene, node: ast.AST, maker: str, shape: tuple[int, ...] | None) -> float:
    written = target(node)
    score = 0.0
    if written is None:
        return score
    made = _made_before(scene, node, scene.text(written))
    plain = maker.lower().lstrip("_")
    text = scene.text(made, 400).lower() if made is not None else ""
    if plain and made is not None:
        aliases = {"unsafeview": "matmul", "bmm": "@", "mm": "@", "addmm": "(", "transpose": "transpose"}
        score += 2.0 * (
            plain in text
            or aliases.get(plain, "\0") in text
            or (plain in ("bmm", "unsafeview") and "@" in text)
        )
    # The step itself can be what is named: `s.sub_(…)` on a kept value is "output 0 of Sub".
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.rstrip("_").replace("_", "") == plain
    ):
        score += 1.5
    if isinstance(node, ast.AugAssign) and plain in type(node.op).__name__.lower():
        score += 1.5
    if plain in ("copyslices", "asstridedbackward") and isinstance(node, ast.Subscript):
        score += 2.0
    for step in scene.crash.steps:
        if step.memory == "in-place" and step.span.line == getattr(node, "lineno", -1):
            score += 0.5
            if shape is not None and any(info.shape == shape for info in (*step.outputs, *step.inputs)):
                score += 1.0
    return score
