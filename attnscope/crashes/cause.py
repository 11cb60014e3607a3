"""What made operands unfit: the lines on their way, the one that is most likely to blame first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

from attnscope.crashes.history import Follow, Link, signature
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.syntax import is_before
from attnscope.crashes.values import UNKNOWN, helper_body, is_module, is_tensor, read
from attnscope.diagnostic import Label
from attnscope.ops import catalog

PARTS = catalog.PARTS - {"getitem", "narrow", "select"}
REPEATS = catalog.REPEATS | {"expand", "expand_as"}


def defined(scene: Scene, node: ast.AST) -> list[Label]:
    """Where the (first) name in an operand got its value, with the shape it then had; at most one label."""
    for link in scene.history(node):
        shape = f" {scene.shape(link.value, link.name)}" if is_tensor(link.value) else ""
        if link.kind == "def":
            return [scene.label(link.node, f"`{link.name}`{shape} is made here")]
        if link.kind == "attribute":
            shape = f" {sizes(link.value.shape)}" if is_tensor(link.value) else ""
            return scene.set_at(link.node, f"`{link.name}`{shape} is {{}} here")
    return []


def trail(scene: Scene, node: ast.AST, skip: Iterable[int] = (), follow: Follow | None = None) -> list[Label]:
    """The earlier lines on an operand's way, nearest first: definitions, bounds of slices, the layer it left.

    The lines in `skip` are left out.
    """
    labels: list[Label] = []
    layers: list[Label] = []
    told = set(skip)
    first = 0 if told else 1
    for link in scene.history(node, prefer=follow):
        for label in _marks(scene, link):
            if label.span.line not in told:
                told.add(label.span.line)
                (layers if " gives " in label.text else labels).append(label)
    return labels[:first] + layers[:1] + labels[first:] + layers[1:]


def _marks(scene: Scene, link: Link) -> Iterator[Label]:
    if link.kind == "def":
        shape = f" {scene.shape(link.value, link.name)}" if is_tensor(link.value) else ""
        yield scene.label(link.node, f"`{link.name}`{shape} is made here")
    elif link.kind == "op" and isinstance(link.node, ast.Subscript):
        for name in [one for one in ast.walk(link.node.slice) if isinstance(one, ast.Name)]:
            found, value = link.env.definition(name.id), scene.value(name, link.env)
            right = found[0].value if found is not None and isinstance(found[0], ast.Assign) else None
            # Worked out here, and not only read off a shape.
            if (
                found is not None
                and type(value) is int
                and isinstance(right, ast.BinOp | ast.Call | ast.Name)
            ):
                yield scene.label(found[0], f"`{name.id}` is {value} since here")
    elif link.kind in ("op", "end") and isinstance(link.node, ast.Call):
        called = link.node.func
        found = link.env.definition(called.id) if isinstance(called, ast.Name) else None
        if found is not None:
            yield scene.label(found[0], f"`{scene.text(called)}` is made here")
        yield from layer_label(scene, link)


def layer_label(scene: Scene, link: Link) -> list[Label]:
    """Where the linear layer of a link is set, with the number of features that it gives."""
    callee = link.node.func if link.name == "Linear" and isinstance(link.node, ast.Call) else None
    layer = scene.value(callee, link.env)
    if not isinstance(callee, ast.Attribute) or not is_module(layer):
        return []
    return scene.set_at(callee, f"`{callee.attr}` gives {read(layer, 'out_features')} features")


def lengths(scene: Scene) -> set[int]:
    """How many tokens the function's own arguments have: axis 1 of [B, T, C], axis -2 of others."""
    found: set[int] = set()
    for _, value in scene.arguments[1:]:
        if is_tensor(value) and value.is_floating_point() and value.dim() >= 2:
            found.add(int(value.shape[1] if value.dim() == 3 else value.shape[-2]))
        elif is_tensor(value) and value.dim() == 2:
            found.add(int(value.shape[1]))
    return found


def unread(scene: Scene) -> list[Label]:
    """Tensors that the function has set and that nothing in it reads."""
    return [
        scene.label(node, f"`{node.id}` is set here and never read")
        for node in scene.unread_names()
        if scene.reader is not None and is_tensor(scene.reader.body.locals.get(node.id))
    ][:2]


def oddities(scene: Scene, node: ast.AST, follow: Follow | None = None) -> list[Label]:
    """Labels for the operations on an operand's way that are odd in themselves."""
    links = scene.history(node, prefer=follow)
    return [scene.label(link.node, text) for link in links if (text := _odd(scene, link))]


def _odd(scene: Scene, link: Link) -> str:
    """What is remarkable in one operation, as a fact; "" for an ordinary one."""
    if link.kind != "op" or not is_tensor(link.before) or not is_tensor(link.value):
        return ""
    before, after = tuple(link.before.shape), tuple(link.value.shape)
    moved = f"{sizes(before)} → {sizes(after)}"
    axis = tokens_changed(scene, link)
    if axis is not None and link.name in REPEATS:
        return f"axis {axis} grows from {before[axis]} to {after[axis]} here: {moved}"
    if axis is not None:
        return f"axis {axis} ({before[axis]}, the tokens) is cut here: {moved}"
    reverses = link.name in ("permute", "T", "t") and len(before) > 2 and after == before[::-1]
    if reverses and (link.name != "permute" or _order(scene, link) == list(range(len(before)))[::-1]):
        return f"reverses all the axes: {moved}"
    return ""


def tokens_changed(scene: Scene, link: Link) -> int | None:
    """The axis of the tokens, where an operation that repeats or cuts heads or channels works on it."""
    if not is_tensor(link.before) or not is_tensor(link.value):
        return None
    before, after = tuple(link.before.shape), tuple(link.value.shape)
    if len(before) != len(after) or link.name not in REPEATS | PARTS:
        return None
    changed = [i for i in range(len(before)) if before[i] != after[i]]
    if link.name in REPEATS:
        changed = [i for i in changed if before[i] != 1] if len(before) == 4 else []
    else:
        changed = [i for i in changed if i < len(before) - 1]
    return changed[0] if changed and before[changed[0]] in lengths(scene) else None


def _order(scene: Scene, link: Link) -> list[int]:
    given = link.node.args if isinstance(link.node, ast.Call) else []
    values = [scene.value(arg, link.env) for arg in given]
    if len(values) == 1 and isinstance(values[0], tuple | list):
        values = list(values[0])
    return [value % len(values) for value in values] if all(type(value) is int for value in values) else []


def source(scene: Scene, node: ast.AST, size: int) -> tuple[Label, str, str] | None:
    """The argument from which an axis of this size came: (label, the variable made from it, the argument)."""
    links = scene.history(node, prefer=Follow(size))
    made = [link for link in links if link.kind == "def"]
    last = links[-1] if made else None
    if last is None or last.kind != "argument" or not is_tensor(last.value) or size not in last.value.shape:
        return None
    text = f"`{made[-1].name}` is made from `{last.name}` {sizes(last.value.shape)}: the {size} comes from it"
    return scene.label(made[-1].node, text), made[-1].name, last.name


def causes(scene: Scene, operands: Sequence[tuple[ast.AST, Any]]) -> list[Label]:
    """Labels for the lines that most likely made the operands unfit, most telling first.

    First operations that are odd in themselves (heads repeated along another axis, all axes reversed),
    then what one of several like-made tensors does differently, then the operands' definitions.
    """
    operands = list(operands)
    dims = [value.dim() for _, value in operands]
    alone = next((i for i, n in enumerate(dims) if dims.count(n) == 1), None) if len(dims) > 2 else None
    if alone is not None:
        operands.insert(0, operands.pop(alone))
    labels: list[Label] = []
    for node, _ in operands:
        labels += oddities(scene, node)
        labels += [label for link in scene.history(node) for label in _returned(scene, link)]
    labels += unread(scene)
    labels += different(scene, operands)
    if alone is not None:
        first = trail(scene, operands[0][0], {label.span.line for label in labels})
        labels += sorted(first, key=lambda one: " gives " in one.text)
    told = {label.span.line for label in labels}
    labels += [one for node, _ in operands for one in defined(scene, node) if one.span.line not in told]
    for node, _ in operands:
        labels += trail(scene, node, {label.span.line for label in labels})
    return unique(labels)


def _returned(scene: Scene, link: Link) -> list[Label]:
    """The `return` of a helper of the same file that gives another shape than it was given."""
    if link.kind != "op" or not isinstance(link.node, ast.Call) or scene.file is None:
        return []
    if not is_tensor(link.before) or not is_tensor(link.value) or link.before.shape == link.value.shape:
        return []
    called = link.node.func
    target = scene.value(called, link.env)
    function = getattr(target, "__func__", target) if target is not UNKNOWN else None
    if not isinstance(function, FunctionType) or function.__code__.co_filename != scene.file.name:
        return []
    body = helper_body(function)
    if body is None or not isinstance(body.body[-1], ast.Return):
        return []
    text = f"`{scene.text(called)}` gives {sizes(link.value.shape)} for {sizes(link.before.shape)}"
    return [scene.label(body.body[-1], text)]


def unique(labels: Iterable[Label]) -> list[Label]:
    """At most one label for a line and a column, in order."""
    kept: dict[tuple[int, int], Label] = {}
    for label in labels:
        kept.setdefault((label.span.line, label.span.column), label)
    return list(kept.values())


def different(scene: Scene, operands: Sequence[tuple[ast.AST, Any]]) -> list[Label]:
    """What one of several tensors that are made alike (q, k, v) does that the others do not."""
    made = _signatures(scene, operands)
    said = {name: [text for text, _ in steps] for name, steps in made.items()}
    labels: list[Label] = []
    for name, mine in said.items():
        others = [other for other in said if other != name]
        alike = [other for other in others if _one_apart(mine, said[other])]
        if alike and mine not in [said[other] for other in others]:
            other = max(alike, key=lambda one: list(said.values()).count(said[one]))
            labels.append(_difference(scene, name, made[name], other, said[other]))
    return labels


def _signatures(
    scene: Scene, operands: Sequence[tuple[ast.AST, Any]]
) -> dict[str, list[tuple[str, ast.AST]]]:
    nodes: dict[str, ast.AST] = {scene.text(node): node for node, _ in operands}
    if scene.reader is not None and scene.shot is not None and scene.shot.statement is not None:
        for name, value in list(scene.reader.body.locals.items())[:60]:
            if is_tensor(value) and name not in nodes and name in scene.reader.defs:
                nodes[name] = ast.copy_location(ast.Name(name, ast.Load()), scene.shot.statement)
    found = {}
    for text, node in nodes.items():
        # Names of the tensors themselves do not count: `q.view(…)` and `k.view(…)` are made alike.
        steps = signature(scene.history(node), scene.text)
        found[text] = [(re.sub(r"\s+", "", said), where) for said, where in steps if where is not node]
    return {text: steps for text, steps in found.items() if steps}


def _one_apart(left: list[str], right: list[str]) -> bool:
    if len(left) == len(right):
        same_kind = len(left) > 1 or left[0].split("(")[0] == right[0].split("(")[0]
        return same_kind and sum(a != b for a, b in zip(left, right, strict=True)) == 1
    short, long = sorted((left, right), key=len)
    return len(long) - len(short) == 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _difference(
    scene: Scene, name: str, mine: list[tuple[str, ast.AST]], other: str, theirs: list[str]
) -> Label:
    """The label for the one step in which two ways differ."""
    texts = [text for text, _ in mine]
    at = next((i for i, (a, b) in enumerate(zip(texts, theirs, strict=False)) if a != b), None)
    at = min(len(texts), len(theirs)) if at is None else at
    node = mine[min(at, len(mine) - 1)][1]
    if len(texts) < len(theirs):
        return scene.label(node, f"`{name}` does not take `{theirs[at]}` as `{other}` does")
    if len(texts) > len(theirs):
        return scene.label(node, f"`{name}` takes `{texts[at]}` here, `{other}` does not")
    return scene.label(node, f"`{name}` takes `{texts[at]}` here where `{other}` takes `{theirs[at]}`")


def overwritten(scene: Scene, name: str) -> ast.stmt | None:
    """The assignment of `name` whose value is never read: the next one overwrites it unseen."""
    places = [pair[0] for pair in scene.reader.defs.get(name, ())] if scene.reader is not None else []
    function = scene.reader.body.function if scene.reader is not None else None
    if len(places) < 2 or function is None:
        return None
    first, second = places[-2], places[-1]
    reads = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    inside = set(map(id, ast.walk(second)))
    between = [n for n in reads if id(n) in inside or (is_before(first, n) and is_before(n, second))]
    return None if any(node.id == name for node in between) else first


def cast_at(scene: Scene, node: ast.AST, value: Any) -> ast.AST | None:
    """The expression at which the dtype became what it is."""
    later: Link | None = None
    for link in scene.history(node):
        if is_tensor(link.before) and link.before.dtype != value.dtype:
            return link.node
        if is_tensor(link.value) and link.value.dtype != value.dtype:
            return (later or link).node
        later = link if link.kind != "argument" else later
    return None


def mismatch(*shapes: Sequence[int]) -> int | None:
    """The axis, counted from the end (-1), at which shapes do not broadcast; the leftmost such axis."""
    worst: int | None = None
    for axis in range(1, max((len(shape) for shape in shapes), default=0) + 1):
        if len({int(shape[-axis]) for shape in shapes if len(shape) >= axis} - {1}) > 1:
            worst = -axis
    return worst
