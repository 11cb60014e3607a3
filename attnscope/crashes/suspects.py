"""Which earlier lines a misfit comes from: the definitions of the operands, and what sets one apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from attnscope.crashes.history import Follow, Link, signature
from attnscope.crashes.scene import Scene, sizes
from attnscope.crashes.syntax import is_before
from attnscope.crashes.values import UNKNOWN, helper_body, is_module, is_tensor, read
from attnscope.diagnostic import Label

PARTS = ("chunk", "split", "split_with_sizes", "tensor_split")
REPEATS = ("repeat_interleave", "repeat", "expand", "tile", "expand_as")


def defined(scene: Scene, node: ast.AST, value: Any = UNKNOWN) -> Label | None:
    """Where the (first) name in an operand got its value, with the shape it then had."""
    for link in scene.history(node):
        if link.kind == "def":
            shape = f" {scene.shape(link.value, link.name)}" if is_tensor(link.value) else ""
            return scene.label(link.node, f"`{link.name}`{shape} is made here")
        if link.kind == "attribute":
            setting = scene.setting(link.name)
            if setting is not None:
                shape = f" {sizes(link.value.shape)}" if is_tensor(link.value) else ""
                kept = "registered" if setting.registered else "set"
                return scene.label(setting.target, f"`{link.name}`{shape} is {kept} here")
            return None
    return None


def trail(scene: Scene, node: ast.AST, skip: Iterable[int] = (), follow: Follow | None = None) -> list[Label]:
    """The earlier lines on an operand's way, nearest first: definitions, bounds of slices, the layer it left.

    The lines in `skip` are left out.
    """
    labels: list[Label] = []
    layers: list[Label] = []
    first = not set(skip)
    told = set(skip)

    def add(where: ast.AST, text: str, to: list[Label]) -> None:
        label = scene.label(where, text)
        if label.span.line not in told:
            told.add(label.span.line)
            to.append(label)

    for link in scene.history(node, prefer=follow):
        if link.kind == "def":
            shape = f" {scene.shape(link.value, link.name)}" if is_tensor(link.value) else ""
            add(link.node, f"`{link.name}`{shape} is made here", labels)
        elif link.kind == "op" and isinstance(link.node, ast.Subscript):
            for name in ast.walk(link.node.slice):
                found = link.env.definition(name.id) if isinstance(name, ast.Name) else None
                value = scene.value(name, link.env) if isinstance(name, ast.Name) else UNKNOWN
                if found is not None and type(value) is int and _computed(found[0]):
                    add(found[0], f"`{name.id}` is {value} since here", labels)  # type: ignore[attr-defined]
        elif link.kind in ("op", "end") and isinstance(link.node, ast.Call):
            called = link.node.func
            if isinstance(called, ast.Name):
                found = link.env.definition(called.id)
                if found is not None:
                    add(found[0], f"`{called.id}` is made here", labels)
            layer = layer_label(scene, link)
            if layer is not None and layer.span.line not in told:
                told.add(layer.span.line)
                layers.append(layer)
    if not first:
        return layers[:1] + labels + layers[1:]
    return labels[:1] + layers[:1] + labels[1:] + layers[1:]


def _computed(statement: ast.stmt) -> bool:
    """Whether a size was worked out here, and not only read off a shape."""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp | ast.Call | ast.Name)


def layer_label(scene: Scene, link: Link) -> Label | None:
    """Where the linear layer of a link is set, with the number of features that it gives."""
    if link.name != "Linear" or not isinstance(link.node, ast.Call):
        return None
    callee = link.node.func
    if not isinstance(callee, ast.Attribute):
        return None
    layer, setting = scene.value(callee, link.env), scene.setting(callee.attr)
    if setting is None or not is_module(layer):
        return None
    return scene.label(setting.target, f"`{callee.attr}` gives {read(layer, 'out_features')} features")


def all_defined(scene: Scene, nodes: Iterable[ast.AST]) -> list[Label]:
    return [label for node in nodes if (label := defined(scene, node)) is not None]


def lengths(scene: Scene) -> set[int]:
    """How many tokens the function's own arguments have: axis 1 of [B, T, C], axis -2 of others."""
    found: set[int] = set()
    if scene.reader is None:
        return found
    code = scene.reader.body.frame.f_code
    for name in code.co_varnames[1 : code.co_argcount]:
        value = scene.reader.body.locals.get(name)
        if is_tensor(value) and value.is_floating_point() and value.dim() >= 2:
            found.add(int(value.shape[1] if value.dim() == 3 else value.shape[-2]))
        elif is_tensor(value) and value.dim() == 2:
            found.add(int(value.shape[1]))
    return found


def unread(scene: Scene) -> list[Label]:
    """Tensors that the function has set and that nothing in it reads."""
    function = scene.reader.body.function if scene.reader is not None else None
    if function is None or scene.reader is None:
        return []
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    loaded = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    return [
        scene.label(node, f"`{node.id}` is set here and never read")
        for node in names
        if isinstance(node.ctx, ast.Store)
        and node.id not in loaded
        and node.id.strip("_")
        and is_tensor(scene.reader.body.locals.get(node.id))
    ][:2]


def oddities(scene: Scene, node: ast.AST, follow: Follow | None = None) -> list[Label]:
    """Labels for the operations on an operand's way that are odd in themselves."""
    labels = []
    for link in scene.history(node, prefer=follow):
        text = odd(scene, link)
        if text:
            labels.append(scene.label(link.node, text))
    return labels


def source(scene: Scene, node: ast.AST, size: int) -> tuple[Label, str, str] | None:
    """The argument from which an axis of this size came: (label, the variable made from it, the argument)."""
    links = scene.history(node, prefer=Follow(size))
    last = links[-1] if links else None
    made = [link for link in links if link.kind == "def"]
    if last is None or last.kind != "argument" or not made or not is_tensor(last.value):
        return None
    if size not in tuple(last.value.shape):
        return None
    text = f"`{made[-1].name}` is made from `{last.name}` {sizes(last.value.shape)}: the {size} comes from it"
    return scene.label(made[-1].node, text), made[-1].name, last.name


def misfits(scene: Scene, operands: Sequence[tuple[ast.AST, Any]]) -> list[Label]:
    """Labels for the lines that most likely made the operands unfit, most telling first.

    First operations that are odd in themselves (heads repeated along another axis, all axes reversed),
    then what one of several like-made tensors does differently, then the operands' definitions.
    """
    operands = list(operands)
    alone = None
    if len(operands) > 2:
        dims = [value.dim() for _, value in operands]
        alone = next((i for i, n in enumerate(dims) if dims.count(n) == 1), None)
        if alone is not None:
            operands.insert(0, operands.pop(alone))
    labels: list[Label] = []
    for node, _ in operands:
        labels += oddities(scene, node)
        for link in scene.history(node):
            returned = _returned(scene, link)
            if returned is not None:
                labels.append(returned)
    labels += unread(scene)
    labels += different(scene, operands)
    told = {label.span.line for label in labels}
    if alone is not None:
        first = trail(scene, operands[0][0], told)
        labels += sorted(first, key=lambda one: " gives " in one.text)
        told = {label.span.line for label in labels}
    labels += [one for one in all_defined(scene, [node for node, _ in operands]) if one.span.line not in told]
    for node, _ in operands:
        labels += trail(scene, node, {label.span.line for label in labels})
    return unique(labels)


def _returned(scene: Scene, link: Link) -> Label | None:
    """The `return` of a helper of the same file that gives another shape than it was given."""
    if (
        link.kind != "op"
        or not isinstance(link.node, ast.Call)
        or not is_tensor(link.before)
        or not is_tensor(link.value)
    ):
        return None
    if link.before.shape == link.value.shape or scene.file is None:
        return None
    called = link.node.func
    target = scene.value(called, link.env)
    function = getattr(target, "__func__", target)
    if not isinstance(function, FunctionType) or function.__code__.co_filename != scene.file.name:
        return None
    body = helper_body(function)
    last = body.body[-1] if body is not None else None
    if not isinstance(last, ast.Return):
        return None
    return scene.label(
        last, f"`{scene.text(called)}` gives {sizes(link.value.shape)} for {sizes(link.before.shape)}"
    )


def unique(labels: Iterable[Label]) -> list[Label]:
    """At most one label for a line and a column, in order."""
    seen: set[tuple[int, int]] = set()
    kept = []
    for label in labels:
        key = (label.span.line, label.span.column)
        if key not in seen:
            seen.add(key)
            kept.append(label)
    return kept


def odd(scene: Scene, link: Link) -> str:
    """What is remarkable in one operation, as a fact; "" for an ordinary one."""
    if link.kind != "op" or not is_tensor(link.before) or not is_tensor(link.value):
        return ""
    before, after = tuple(link.before.shape), tuple(link.value.shape)
    if link.name in REPEATS and len(before) == len(after) == 4:
        grown = [axis for axis in range(len(before)) if before[axis] != after[axis] and before[axis] != 1]
        if grown and before[grown[0]] in lengths(scene):
            axis = grown[0]
            return (
                f"axis {axis} grows from {before[axis]} to "
                f"{after[axis]} here: {sizes(before)} → {sizes(after)}"
            )
    if link.name in PARTS and len(before) == len(after):
        cut = next((i for i in range(len(before) - 1) if before[i] != after[i]), None)
        if cut is not None and before[cut] in lengths(scene):
            return f"axis {cut} ({before[cut]}, the tokens) is cut here: {sizes(before)} → {sizes(after)}"
    if link.name in ("permute", "T", "t") and len(before) > 2 and after == before[::-1]:
        order = _order(scene, link)
        if link.name != "permute" or order == list(range(len(before)))[::-1]:
            return f"reverses all the axes: {sizes(before)} → {sizes(after)}"
    return ""


def _order(scene: Scene, link: Link) -> list[int] | None:
    if not isinstance(link.node, ast.Call):
        return None
    values = [scene.value(arg, link.env) for arg in link.node.args]
    if len(values) == 1 and isinstance(values[0], tuple | list):
        values = list(values[0])
    if all(type(value) is int for value in values):
        return [value % len(values) for value in values]
    return None


def different(scene: Scene, operands: Sequence[tuple[ast.AST, Any]]) -> list[Label]:
    """What one of several tensors that are made alike (q, k, v) does that the others do not."""
    made = _signatures(scene, operands)
    labels: list[Label] = []
    names = list(made)
    for name in names:
        mine = [text for text, _ in made[name]]
        alike = [
            other for other in names if other != name and _close(mine, [text for text, _ in made[other]])
        ]
        same = [other for other in names if other != name and [t for t, _ in made[other]] == mine]
        if same or not alike:
            continue
        other = max(
            alike,
            key=lambda one: sum([t for t, _ in made[x]] == [t for t, _ in made[one]] for x in names),
        )
        label = _difference(scene, name, made[name], other, made[other])
        if label is not None:
            labels.append(label)
    return labels


def _signatures(
    scene: Scene, operands: Sequence[tuple[ast.AST, Any]]
) -> dict[str, list[tuple[str, ast.AST]]]:
    found: dict[str, list[tuple[str, ast.AST]]] = {}
    nodes: dict[str, ast.AST] = {}
    for node, _ in operands:
        nodes[scene.text(node)] = node
    if scene.reader is not None and scene.shot is not None:
        place = scene.shot.statement
        for name, value in list(scene.reader.body.locals.items())[:60]:
            if is_tensor(value) and name not in nodes and name in scene.reader.defs and place is not None:
                nodes[name] = ast.copy_location(ast.Name(name, ast.Load()), place)
    for text, node in nodes.items():
        links = scene.history(node)
        # Names of the tensors themselves do not count: `q.view(…)` and `k.view(…)` are made alike.
        steps = [
            (re.sub(r"\s+", "", said), where)
            for said, where in signature(links, scene.text)
            if where is not node
        ]
        if steps:
            found[text] = steps
    return found


def _close(left: list[str], right: list[str]) -> bool:
    if left == right or not left or not right:
        return False
    if len(left) == len(right):
        return sum(a != b for a, b in zip(left, right, strict=True)) == 1 and (
            len(left) > 1 or left[0].split("(")[0] == right[0].split("(")[0]
        )
    short, long = sorted((left, right), key=len)
    return len(long) - len(short) == 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


def _difference(
    scene: Scene,
    name: str,
    mine: list[tuple[str, ast.AST]],
    other: str,
    theirs: list[tuple[str, ast.AST]],
) -> Label | None:
    for index, (text, node) in enumerate(mine):
        if index >= len(theirs):
            return scene.label(node, f"`{name}` takes `{text}` here, `{other}` does not")
        if text != theirs[index][0]:
            if len(mine) == len(theirs):
                return scene.label(
                    node, f"`{name}` takes `{text}` here where `{other}` takes `{theirs[index][0]}`"
                )
            if len(mine) < len(theirs):
                return scene.label(node, f"`{name}` does not take `{theirs[index][0]}` as `{other}` does")
            return scene.label(node, f"`{name}` takes `{text}` here, `{other}` does not")
    if len(mine) < len(theirs) and mine:
        return scene.label(mine[-1][1], f"`{name}` does not take `{theirs[len(mine)][0]}` as `{other}` does")
    return None


def overwritten(scene: Scene, name: str) -> ast.stmt | None:
    """The assignment of `name` whose value is never read: the next one overwrites it unseen."""
    if scene.reader is None:
        return None
    places = [pair[0] for pair in scene.reader.defs.get(name, ())]
    function = scene.reader.body.function
    if len(places) < 2 or function is None:
        return None
    first, second = places[-2], places[-1]
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            inside = node in ast.walk(second)
            if inside or (is_before(first, node) and is_before(node, second)):
                return None
    return first


def broadcastable(*shapes: Sequence[int]) -> bool:
    return mismatch(*shapes) is None


def mismatch(*shapes: Sequence[int]) -> int | None:
    """The axis, counted from the end (-1), at which shapes do not broadcast; the leftmost such axis."""
    worst: int | None = None
    for axis in range(1, max((len(shape) for shape in shapes), default=0) + 1):
        found = {int(shape[-axis]) for shape in shapes if len(shape) >= axis} - {1}
        if len(found) > 1:
            worst = -axis
    return worst
