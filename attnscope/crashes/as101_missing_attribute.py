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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from attnscope.crashes.missing import Missing, missing, on_self, owner_words
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.syntax import methods, nearness, reads, self_name
from attnscope.crashes.values import UNKNOWN, held, is_module, is_parts, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS101"
_GIVEN = dict.fromkeys(
    "view reshape range split chunk unflatten repeat_interleave sqrt is_causal dropout_p scale dim p "
    "training".split(),
    "number",
) | dict.fromkeys("masked_fill where matmul bmm einsum linear attn_mask mask".split(), "tensor")
"""What a function, or an argument of this name, is given."""


@dataclass(frozen=True)
class Use:
    """How the source uses the attribute: called, a number, iterated, a tensor; the axes of its subscript."""

    kinds: frozenset[str] = frozenset()
    sliced: int | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    text: str
    name: str
    value: Any
    read: bool
    score: float = 0.0


def diagnose(scene: Scene) -> Diagnostic | None:
    found = missing(scene)
    if found is None:
        return None
    if found.owner is UNKNOWN or not on_self(found, scene):
        return _elsewhere(scene, found)
    owner, me = found.owner, self_name(scene.function) if scene.function is not None else "self"
    inits = [one for one in methods(scene.klass) if one.name == "__init__"] if scene.klass is not None else []
    use = _use(scene, found)
    best = max(_candidates(scene, found, use, me), key=lambda one: one.score, default=None)
    local = _kept_local(found, inits[0], me) if inits and isinstance(inits[0], ast.FunctionDef) else None
    notes: list[str] = []
    if best is not None and best.score >= 2.0:
        labels = [_kept(scene, best)] if scene.setting(_base(best)) is not None else []
        cure = _read_instead(scene, found, use, best, me)
    elif local is not None:
        node, text, cure = local
        labels = [scene.label(node, text)]
    else:
        known = sorted(held(owner))[:12]
        notes = [f"`{type(owner).__name__}` has " + ", ".join(f"`{name}`" for name in known)] if known else []
        labels = [scene.label(init, "nothing in the class sets it") for init in inits[:1]]
        cure = f"set `{me}.{found.name}` in `__init__` before it is read"
    message = f"`{type(owner).__name__}` has no attribute `{found.name}`"
    label = _read_label(scene, found)
    return scene.finding(CODE, message, label=label, labels=labels, notes=notes, help=cure)


def _base(best: Candidate) -> str:
    return re.split(r"[.\[]", best.text)[1]


def _kept(scene: Scene, best: Candidate) -> Label:
    """Where the attribute that is meant gets its value."""
    setting = scene.setting(_base(best))
    assert setting is not None
    if best.text.count(".") > 1 or "[" in best.text:
        shown = f" (= {best.value})" if type(best.value) in (int, float, bool) else ""
        return scene.label(setting.target, f"`{best.text}`{shown} is kept here")
    shape = f" {sizes(best.value.shape)}" if is_tensor(best.value) else ""
    kept, unread = "registered" if setting.registered else "set", "" if best.read else " and never read"
    return scene.label(setting.target, f"`{_base(best)}`{shape} is {kept} here{unread}")


def _read_instead(scene: Scene, found: Missing, use: Use, best: Candidate, me: str) -> str:
    node: ast.AST | None = found.node
    around = scene.file.parents.get(found.node) if scene.file is not None and found.node is not None else None
    if isinstance(around, ast.Subscript) and around.value is node:
        node = around  # with its subscript: `self.bias[:, :, :T, :T]`
    whole = scene.text(node) if node is not None and scene.file is not None else f"self.{found.name}"
    cure = f"read `{whole.replace(f'{me}.{found.name}', best.text, 1)}`"
    fits = use.sliced is not None and is_tensor(best.value) and best.value.dim() == use.sliced
    if nearness(found.name, best.name) >= 0.62 or fits:
        return cure
    return cure + ", if that is what is meant" + ("" if best.read else ": nothing else reads it")


def _read_label(scene: Scene, found: Missing) -> str:
    """What was about to be done with the attribute, where that is plain."""
    around = scene.file.ancestors(found.node) if found.node is not None and scene.file is not None else ()
    for parent in around:
        if isinstance(parent, ast.stmt):
            break
        filled = parent.func if isinstance(parent, ast.Call) else None
        if isinstance(filled, ast.Attribute) and filled.attr in ("masked_fill", "masked_fill_"):
            scores = scene.value(filled.value)
            if is_tensor(scores):
                return f"read here, before {scene.show(filled.value, scores)} can be masked"
    return "read here"


def _use(scene: Scene, found: Missing) -> Use:
    nodes = reads(scene.klass).get(found.name, []) if scene.klass is not None else []
    if found.node is not None and found.node not in nodes:
        nodes = [found.node, *nodes]
    kinds, fields, sliced = set[str](), set[str](), None
    for node in nodes:
        parent = scene.file.parents.get(node) if scene.file is not None else None
        if isinstance(parent, ast.Subscript) and parent.value is node:
            sliced = len(parent.slice.elts) if isinstance(parent.slice, ast.Tuple) else 1
        elif isinstance(parent, ast.Attribute):
            fields.add(parent.attr)
        elif parent is not None:
            kinds.add(_kind(scene, node, parent))
    return Use(frozenset(kinds - {""}), sliced, tuple(sorted(fields)))


def _kind(scene: Scene, node: ast.AST, parent: ast.AST) -> str:
    """What the code around a read wants: "called", "number", "iterated", "tensor" or ""."""
    if isinstance(parent, ast.Call):
        called = parent.func.attr if isinstance(parent.func, ast.Attribute) else scene.text(parent.func)
        return "called" if parent.func is node else _GIVEN.get(called, "")
    if isinstance(parent, ast.keyword):
        return _GIVEN.get(parent.arg or "", "")
    if isinstance(parent, ast.For | ast.comprehension):
        return "iterated"
    if isinstance(parent, ast.UnaryOp):
        return "tensor" if isinstance(parent.op, ast.Invert) else ""
    if isinstance(parent, ast.BinOp):
        other = scene.value(parent.right if parent.left is node else parent.left)
        if isinstance(parent.op, ast.FloorDiv | ast.Mod | ast.Pow) or type(other) in (int, float):
            return "number"
        return "tensor" if isinstance(parent.op, ast.MatMult) else ""
    around = (
        scene.file.parents.get(parent) if isinstance(parent, ast.Tuple) and scene.file is not None else None
    )
    if isinstance(around, ast.comprehension) and scene.file is not None:
        # `(f(x) for f in (self.q, self.k))`: whether the comprehension calls what it runs over.
        names = {one.id for one in ast.walk(around.target) if isinstance(one, ast.Name)}
        calls = [one.func for one in ast.walk(scene.file.parents[around]) if isinstance(one, ast.Call)]
        return "called" if any(isinstance(one, ast.Name) and one.id in names for one in calls) else ""
    return "number" if isinstance(around, ast.Call) else ""


def _candidates(scene: Scene, found: Missing, use: Use, me: str) -> list[Candidate]:
    """What may be meant, with how well its name and kind fit, and whether anything else reads it."""
    listed = [replace(one, score=_score(found.name, one, use)) for one in _listed(scene, found, me)]
    tree = scene.file.tree if scene.file is not None else ast.Module([], [])
    libraries = ("torch", "nn", "F", "math", "np")
    everywhere = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id in libraries)
    }
    unread = {
        one.text
        for one in listed
        if one.text == f"{me}.{one.name}"
        and one.name not in everywhere
        and scene.setting(one.name) is not None
    }
    alone = [one.text for one in listed if one.text in unread and one.score > -1.5]
    ranked = []
    for one in listed:
        setting, score = scene.setting(one.name) if one.text in unread else None, one.score
        if setting is not None and isinstance(setting.value, ast.Name) and setting.value.id == found.name:
            score += 4.0  # `self.other = name`: the very value
        elif alone == [one.text]:
            score = max(score + 1.0, 2.1)  # the one attribute that is set and never read
        elif one.read and nearness(found.name, one.name) < 0.75:
            score -= 1.0
        ranked.append(replace(one, score=score))
    return ranked


def _listed(scene: Scene, found: Missing, me: str) -> Iterator[Candidate]:
    """The module's attributes, the fields of its objects and dicts, the members of its classes."""
    used = reads(scene.klass) if scene.klass is not None else {}
    told = set()
    for name, value in held(found.owner).items():
        told.add(name)
        yield Candidate(f"{me}.{name}", name, value, name in used)
        plain = type(value) in (int, float, str, bool, list, tuple, type(None))
        if is_module(value) or is_tensor(value) or plain:
            continue
        fields = value if type(value) is dict else held(value)
        for field, inner in list(fields.items())[:80]:
            if isinstance(field, str) and field.isidentifier():
                told.add(field)
                text = f'{me}.{name}["{field}"]' if type(value) is dict else f"{me}.{name}.{field}"
                yield Candidate(text, field, inner, False)
    for base in type(found.owner).__mro__:
        for name, value in vars(base).items() if not base.__module__.startswith("torch.") else ():
            if base is not object and not name.startswith("__") and name != "forward" and name not in told:
                told.add(name)
                yield Candidate(f"{me}.{name}", name, value, name in used)


def _score(wanted: str, one: Candidate, use: Use) -> float:
    """2 and more: good enough to be named."""
    fit, near, tensors = _fit(one.value, use), nearness(wanted, one.name), "tensor" in use.kinds
    if fit is None:
        return -9.0
    score = fit + (3.0 * near if near >= 0.62 else near) + (0.0 if one.read else 1.0)
    score -= 0.2 if one.text.count(".") > 1 or "[" in one.text else 0.0
    called = "called" in use.kinds
    if near < 0.5 and one.read:
        score -= 1.0
    if near < 0.5 and not (use.sliced or called or tensors):
        score = min(score, 1.5)  # no likeness in the name, nothing in common but "some number"
    return min(score, 1.9) if near < 0.4 and called and one.read else score


def _fit(value: Any, use: Use) -> float | None:
    """How well a value serves the use; None where its kind cannot."""
    layer, kinds = is_module(value), use.kinds
    function = layer or (callable(value) and not is_tensor(value))
    wanted = bool(kinds & {"called", "iterated"} or use.fields or (layer and use.sliced))
    if function != wanted and (function or "called" in kinds):
        return None
    if "number" in kinds and type(value) not in (int, float):
        return None
    if "iterated" in kinds and not (layer or isinstance(value, list | tuple)):
        return None
    if "tensor" in kinds and use.sliced is None and not is_tensor(value):
        return None
    score = float(len(kinds & {"called", "number"}) + ("tensor" in kinds and use.sliced is None))
    if use.sliced is not None and is_tensor(value):
        if value.dim() < use.sliced:
            return None
        score += 2.0 if value.dim() == use.sliced else 0.5
        score += 0.5 if value.dim() >= 2 and value.shape[-1] == value.shape[-2] else 0.0
    elif use.sliced is not None and not (is_parts(value) or isinstance(value, dict) or layer):
        return None
    if use.fields and not all(read(value, one) is not UNKNOWN for one in use.fields):
        score -= 2.0
    return score - (0.0 if kinds or use.sliced or use.fields else 0.5)


def _kept_local(found: Missing, init: ast.FunctionDef, me: str) -> tuple[ast.AST, str, str] | None:
    """A local or a parameter of the constructor that bears the name and was never stored."""
    keep = f"keep it in `__init__`: `{me}.{found.name} = "
    for node in ast.walk(init):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == found.name:
            return node, f"`{found.name}` is a local of `__init__` and is not kept", f"{keep}{found.name}`"
    arguments = [one for one in (*init.args.args, *init.args.kwonlyargs) if one.arg != me]
    best = max(arguments, key=lambda one: nearness(found.name, one.arg), default=None)
    if best is None or nearness(found.name, best.arg) < 0.65:
        return None
    text = f"`{best.arg}` is given to `__init__` and not kept as `{me}.{found.name}`"
    return best, text, f"{keep}{best.arg}`"


def _elsewhere(scene: Scene, found: Missing) -> Diagnostic | None:
    """The attribute is missing on something else: a config, a library, a tensor, another module."""
    owner = found.owner
    if type(owner) in (tuple, list, type(None), int, float, str, bool, dict):
        return None
    library = isinstance(owner, ModuleType) or is_tensor(owner)
    if isinstance(owner, ModuleType):
        names = [name for name in vars(owner) if name[:1] != "_"]
    else:
        kind = [] if owner is UNKNOWN or is_module(owner) else dir(type(owner))
        own = [] if owner is UNKNOWN or library else [*held(owner)]
        names = [*own, *(name for name in kind if name[:1] != "_")]
    near = difflib.get_close_matches(found.name, names, 1, 0.75)
    if not near and not library:
        ranked = sorted(names, key=lambda name: -nearness(found.name, name))
        near = [name for name in ranked[:1] if nearness(found.name, name) >= 0.65]
    whole = scene.text(found.node) if found.node is not None else found.name
    base = found.node.value if found.node is not None else None
    told = sorted(set(names))[:12] if not near and not library else []
    return scene.finding(
        CODE,
        f"{owner_words(found)} has no attribute `{found.name}`",
        label=f"`{whole}` is read here",
        labels=scene.set_at(base, f"`{scene.text(base)}` is set here"),
        notes=[f"it has {', '.join(f'`{name}`' for name in told)}"] if told else [],
        help=f"read `{scene.text(base)}.{near[0]}`"
        if near and base is not None
        else f"give {owner_words(found)} the attribute first",
    )
