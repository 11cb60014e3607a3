"""AS101: an attribute is read that was never set.

The code reads `self.x` (or a field of a config, a function of a library), and there is no `x`. Most often
the attribute exists under another name: a buffer was renamed where it is registered and not where it is
read, or a size moved to `self.config`.

It is bad because the module stops there, and because PyTorch's message names the missing attribute alone:
the one that was meant has to be searched for.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.ones(8, 8).tril().view(1, 8, 8))

        def forward(self, x):
            scores = x @ x.transpose(-2, -1)
            return scores.masked_fill(self.bias[:, :6, :6] == 0, float("-inf"))

Cure: read the attribute under the name that it was given (`self.mask`), or give it the name that is read.

    - return scores.masked_fill(self.bias[:, :6, :6] == 0, float("-inf"))
    + return scores.masked_fill(self.mask[:, :6, :6] == 0, float("-inf"))
"""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from attnscope.crashes.missing import Missing, missing, on_self, owner_words
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.syntax import methods, nearness, reads, self_name
from attnscope.crashes.values import UNKNOWN, held, is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS101"


@dataclass(frozen=True)
class Use:
    """How the source uses the attribute: as a callable, a table, a number, a sequence of modules."""

    called: bool = False
    sliced: int | None = None  # number of axes in the subscript
    number: bool = False
    iterated: bool = False
    tensor: bool = False  # in arithmetic with a tensor, `~`, a comparison
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    text: str
    name: str
    value: Any
    score: float
    read: bool


def diagnose(scene: Scene) -> Diagnostic | None:
    found = missing(scene)
    if found is None:
        return None
    if found.owner is UNKNOWN or not on_self(found, scene):
        return _elsewhere(scene, found)
    owner, message = found.owner, f"`{type(found.owner).__name__}` has no attribute `{found.name}`"
    use = _use(scene, found)
    ranked = _candidates(scene, found, use)
    best = ranked[0] if ranked else None
    labels: list[Label] = []
    if best is not None and best.score >= 2.0:
        name = re.split(r"[.\[]", best.text)[1]
        setting = scene.setting(name)
        if setting is not None:
            labels.append(scene.label(setting.target, _label(best, setting.registered)))
        whole = _whole(scene, found).replace(f"{_me(scene)}.{found.name}", best.text, 1)
        alike = nearness(found.name, best.name) >= 0.62
        fits = use.sliced is not None and is_tensor(best.value) and best.value.dim() == use.sliced
        cure = f"read `{whole}`"
        if not alike and not fits:
            cure = f"read `{whole}`, if that is what is meant: nothing else reads it"
            if best.read:
                cure = f"read `{whole}`, if that is what is meant"
        return scene.finding(CODE, message, label=_read_label(scene, found), labels=labels, help=cure)
    local = _kept_local(scene, found)
    if local is not None:
        node, text, cure = local
        return scene.finding(
            CODE, message, label=_read_label(scene, found), labels=[scene.label(node, text)], help=cure
        )
    known, init = sorted(held(owner)), _init(scene)
    notes = (
        [f"`{type(owner).__name__}` has " + ", ".join(f"`{name}`" for name in known[:12])] if known else []
    )
    return scene.finding(
        CODE,
        message,
        label=_read_label(scene, found),
        labels=[scene.label(init, "nothing in the class sets it")] if init is not None else [],
        notes=notes,
        help=f"set `{_me(scene)}.{found.name}` in `__init__` before it is read",
    )


def _me(scene: Scene) -> str:
    function = scene.reader.body.function if scene.reader is not None else None
    return self_name(function) if function is not None else "self"


def _init(scene: Scene) -> ast.AST | None:
    if scene.klass is None:
        return None
    return next((one for one in methods(scene.klass) if one.name == "__init__"), None)


def _read_label(scene: Scene, found: Missing) -> str:
    """What was about to be done with the attribute, where that is plain."""
    if found.node is not None and scene.file is not None:
        for parent in scene.file.ancestors(found.node):
            if isinstance(parent, ast.stmt):
                break
            if (
                isinstance(parent, ast.Call)
                and isinstance(parent.func, ast.Attribute)
                and parent.func.attr in ("masked_fill", "masked_fill_")
            ):
                scores = scene.value(parent.func.value)
                if is_tensor(scores):
                    return f"read here, before {scene.show(parent.func.value, scores)} can be masked"
    return "read here"


def _label(best: Candidate, registered: bool) -> str:
    kept = re.split(r"[.\[]", best.text)[1]
    shape = f" {sizes(best.value.shape)}" if is_tensor(best.value) else ""
    if best.text.count(".") > 1 or "[" in best.text:
        shown = f" (= {best.value})" if type(best.value) in (int, float, bool) else ""
        return f"`{best.text}`{shown} is kept here"
    what = "is registered here" if registered else "is set here"
    return f"`{kept}`{shape} {what}" + ("" if best.read else " and never read")


def _whole(scene: Scene, found: Missing) -> str:
    """The read with its subscript: `self.bias[:, :, :T, :T]`."""
    node: ast.AST | None = found.node
    if node is None or scene.file is None:
        return f"self.{found.name}"
    parent = scene.file.parents.get(node)
    if isinstance(parent, ast.Subscript) and parent.value is node:
        node = parent
    return scene.text(node)


def _use(scene: Scene, found: Missing) -> Use:
    nodes: list[ast.Attribute] = []
    if scene.klass is not None:
        nodes = reads(scene.klass).get(found.name, [])
    if found.node is not None and found.node not in nodes:
        nodes = [found.node, *nodes]
    called = number = iterated = tensor = False
    sliced: int | None = None
    fields: set[str] = set()
    for node in nodes:
        parent = scene.file.parents.get(node) if scene.file is not None else None
        if isinstance(parent, ast.Call):
            if parent.func is node:
                called = True
            else:
                where = (
                    parent.func.attr if isinstance(parent.func, ast.Attribute) else scene.text(parent.func)
                )
                if where in (
                    "view",
                    "reshape",
                    "range",
                    "split",
                    "chunk",
                    "unflatten",
                    "repeat_interleave",
                    "sqrt",
                ):
                    number = True
                elif where in ("masked_fill", "where", "matmul", "bmm", "einsum", "linear"):
                    tensor = True
        elif isinstance(parent, ast.keyword):
            if parent.arg in ("is_causal", "dropout_p", "scale", "dim", "p", "training"):
                number = True
            elif parent.arg in ("attn_mask", "mask"):
                tensor = True
        elif isinstance(parent, ast.Subscript) and parent.value is node:
            sliced = len(parent.slice.elts) if isinstance(parent.slice, ast.Tuple) else 1
        elif isinstance(parent, ast.Attribute):
            fields.add(parent.attr)
        elif isinstance(parent, ast.For | ast.comprehension):
            iterated = True
        elif isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Invert):
            tensor = True
        elif isinstance(parent, ast.BinOp):
            other = parent.right if parent.left is node else parent.left
            value = scene.value(other)
            if isinstance(parent.op, ast.FloorDiv | ast.Mod | ast.Pow) or type(value) in (int, float):
                number = True
            elif isinstance(parent.op, ast.MatMult):
                tensor = True
        elif isinstance(parent, ast.Tuple) and scene.file is not None:
            around = scene.file.parents.get(parent)
            if isinstance(around, ast.comprehension):
                called = called or _turn_is_called(scene, around)
            elif isinstance(around, ast.Call):
                number = True
    return Use(called, sliced, number, iterated, tensor, tuple(sorted(fields)))


def _turn_is_called(scene: Scene, loop: ast.comprehension) -> bool:
    """`(f(x) for f in (self.q, self.k))`: whether the comprehension calls what it runs over."""
    around = scene.file.parents.get(loop) if scene.file is not None else None
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for node in ast.walk(around if around is not None else loop)
    )


def _candidates(scene: Scene, found: Missing, use: Use) -> list[Candidate]:
    me = _me(scene)
    used = reads(scene.klass) if scene.klass is not None else {}
    ranked: list[Candidate] = []
    for name, value in held(found.owner).items():
        score = _score(found.name, name, value, use, name in used, scene)
        ranked.append(Candidate(f"{me}.{name}", name, value, score, name in used))
        if (
            is_module(value)
            or is_tensor(value)
            or type(value) in (int, float, str, bool, list, tuple, type(None))
        ):
            continue
        fields = value if type(value) is dict else held(value)
        for field, inner in list(fields.items())[:80]:
            if isinstance(field, str) and field.isidentifier():
                text = f'{me}.{name}["{field}"]' if type(value) is dict else f"{me}.{name}.{field}"
                score = _score(found.name, field, inner, use, False, scene) - 0.2
                ranked.append(Candidate(text, field, inner, score, False))
    for base in type(found.owner).__mro__:
        if base.__module__.startswith("torch.") or base is object:
            continue
        for name, value in vars(base).items():
            if name.startswith("__") or name == "forward" or name in {c.name for c in ranked}:
                continue
            score = _score(found.name, name, value, use, name in used, scene)
            ranked.append(Candidate(f"{me}.{name}", name, value, score, name in used))
    return sorted(_alone(scene, found, ranked), key=lambda one: -one.score)


def _alone(scene: Scene, found: Missing, ranked: list[Candidate]) -> list[Candidate]:
    """Raises the one attribute that is set and never read anywhere, where its kind fits the use."""
    everywhere = {
        node.attr
        for node in ast.walk(scene.file.tree if scene.file is not None else ast.Module([], []))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("torch", "nn", "F", "math", "np"))
    }
    held = [one for one in ranked if one.text.count(".") == 1 and '"' not in one.text]
    unread = [one for one in held if one.name not in everywhere and scene.setting(one.name) is not None]
    fitting = [one for one in unread if one.score > -1.5]
    raised = []
    for one in ranked:
        setting = scene.setting(one.name) if one in unread else None
        if setting is not None and isinstance(setting.value, ast.Name) and setting.value.id == found.name:
            one = replace(one, score=one.score + 4.0)
        elif len(fitting) == 1 and one is fitting[0]:
            one = replace(one, score=max(one.score + 1.0, 2.1))
        elif one.read and nearness(found.name, one.name) < 0.75:
            one = replace(one, score=one.score - 1.0)
        raised.append(one)
    return raised


def _score(wanted: str, name: str, value: Any, use: Use, is_read: bool, scene: Scene) -> float:
    near = nearness(wanted, name)
    score = 3.0 * near if near >= 0.62 else near
    if not is_read:
        score += 1.0
    callable_kind = is_module(value) or callable(value) if not is_tensor(value) else False
    if use.called:
        score += 1.0 if callable_kind else -4.0
    elif callable_kind and not use.fields and not use.iterated and not (is_module(value) and use.sliced):
        score -= 4.0
    if use.sliced is not None:
        if is_tensor(value):
            score += 2.0 if value.dim() == use.sliced else (0.5 if value.dim() > use.sliced else -3.0)
            if value.dim() >= 2 and value.shape[-1] == value.shape[-2]:
                score += 0.5
        elif not isinstance(value, tuple | list | dict) and not is_module(value):
            score -= 4.0
    if use.tensor and use.sliced is None:
        score += 1.0 if is_tensor(value) else -3.0
    if use.number:
        score += 1.0 if type(value) in (int, float) else -4.0
    if use.iterated and not (is_module(value) or isinstance(value, list | tuple)):
        score -= 4.0
    if use.fields and not all(read(value, one) is not UNKNOWN for one in use.fields):
        score -= 2.0
    if not (use.called or use.number or use.tensor or use.iterated or use.sliced or use.fields):
        score -= 0.5
    if near < 0.5 and is_read:
        score -= 1.0
    # Nothing in common but "some number": no likeness in name means no guess.
    if near < 0.5 and not (use.sliced or use.called or use.tensor):
        score = min(score, 1.5)
    if near < 0.4 and use.called:
        score = min(score, 1.9 if is_read else score)
    return score


def _kept_local(scene: Scene, found: Missing) -> tuple[ast.AST, str, str] | None:
    """A local or a parameter of the constructor that bears the name and was never stored."""
    init = _init(scene)
    if init is None or not isinstance(init, ast.FunctionDef):
        return None
    me = self_name(init)
    for node in ast.walk(init):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == found.name:
            return (
                node,
                f"`{found.name}` is a local of `__init__` and is not kept",
                f"keep it in `__init__`: `{me}.{found.name} = {found.name}`",
            )
    arguments = [*init.args.args, *init.args.kwonlyargs]
    ranked = sorted(arguments, key=lambda arg: -nearness(found.name, arg.arg))
    if ranked and nearness(found.name, ranked[0].arg) >= 0.65 and ranked[0].arg != me:
        name = ranked[0].arg
        return (
            ranked[0],
            f"`{name}` is given to `__init__` and not kept as `{me}.{found.name}`",
            f"keep it in `__init__`: `{me}.{found.name} = {name}`",
        )
    return None


def _elsewhere(scene: Scene, found: Missing) -> Diagnostic | None:
    """The attribute is missing on something else: a config, a library, a tensor, another module."""
    owner = found.owner
    if type(owner) in (tuple, list, type(None), int, float, str, bool, dict):
        return None
    if isinstance(owner, ModuleType) or is_tensor(owner):
        names = [
            n for n in (vars(owner) if isinstance(owner, ModuleType) else dir(type(owner))) if n[:1] != "_"
        ]
    elif owner is UNKNOWN:
        names = []
    else:
        names = [
            *held(owner),
            *(n for n in dir(type(owner)) if not n.startswith("_") and not is_module(owner)),
        ]
    near = difflib.get_close_matches(found.name, names, 1, 0.75)
    if not near and not isinstance(owner, ModuleType) and not is_tensor(owner):
        ranked = sorted(names, key=lambda name: -nearness(found.name, name))
        near = [name for name in ranked[:1] if nearness(found.name, name) >= 0.65]
    whole = scene.text(found.node) if found.node is not None else found.name
    base = scene.text(found.node.value) if found.node is not None else ""
    message = f"{owner_words(found)} has no attribute `{found.name}`"
    labels: list[Label] = []
    if not near and names and not isinstance(owner, ModuleType) and not is_tensor(owner):
        notes = [f"it has {', '.join(f'`{name}`' for name in sorted(set(names))[:12])}"]
    else:
        notes = []
    if found.node is not None and isinstance(found.node.value, ast.Attribute):
        setting = scene.setting(found.node.value.attr)
        if setting is not None:
            labels.append(scene.label(setting.target, f"`{base}` is set here"))
    return scene.finding(
        CODE,
        message,
        label=f"`{whole}` is read here",
        labels=labels,
        notes=notes,
        help=f"read `{base}.{near[0]}`"
        if near and base
        else f"give {owner_words(found)} the attribute first",
    )
