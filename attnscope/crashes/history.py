"""How a value came to be: from an expression back through its operations to an argument or an attribute."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from attnscope.crashes.values import (
    OPERATORS,
    UNKNOWN,
    Env,
    Evaluator,
    Overlay,
    is_module,
    is_tensor,
    place,
    read,
)

Kind = Literal["op", "def", "argument", "attribute", "end"]


@dataclass(frozen=True, eq=False)
class Link:
    """One stage. `node` is the operation's expression, or the statement that gave `name` its value.

    `before` and `value` are the twins that went in and came out (UNKNOWN where that cannot be told).
    """

    kind: Kind
    name: str
    node: ast.AST
    before: Any
    value: Any
    env: Env


@dataclass(frozen=True)
class Follow:
    """Which of several tensors a history is followed into: one with an axis of `size`.

    With `keys`, a product is followed into its right factor: the columns of scores are keys.
    """

    size: int
    keys: bool = False

    def __call__(self, value: Any) -> bool:
        return self.size in tuple(value.shape)


def operation(node: ast.AST, env: Env, evaluate: Evaluator) -> tuple[str, list[ast.expr]] | None:
    """(canonical name, the operands) of an expression that works on tensors, or None."""
    if isinstance(node, ast.BinOp):
        return OPERATORS.get(type(node.op), "binary"), [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return OPERATORS.get(type(node.op), "binary"), [node.target, node.value]
    if isinstance(node, ast.Compare):
        return "compare", [node.left, *node.comparators]
    if isinstance(node, ast.UnaryOp):
        name = {ast.Invert: "invert", ast.USub: "neg"}.get(type(node.op), "unary")
        return name, [node.operand]
    if isinstance(node, ast.Subscript):
        return "getitem", [node.value]
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "H", "mH", "data", "real", "imag"):
        return node.attr, [node.value]
    if isinstance(node, ast.Call):
        args = [arg.value if isinstance(arg, ast.Starred) else arg for arg in node.args]
        if isinstance(node.func, ast.Attribute):
            owner = evaluate(node.func.value, env)
            if is_tensor(owner):
                return node.func.attr, [node.func.value, *args]
            callee = read(owner, node.func.attr) if owner is not UNKNOWN else UNKNOWN
            if is_module(callee):
                return type(callee).__name__, args
            return node.func.attr, args
        callee = evaluate(node.func, env)
        if is_module(callee):
            return type(callee).__name__, args
        if isinstance(node.func, ast.Name):
            return node.func.id, args
        return "call", args
    return None


def history(
    node: ast.AST | None,
    env: Env,
    evaluate: Evaluator,
    prefer: Callable[[Any], bool] | None = None,
    limit: int = 40,
) -> list[Link]:
    """The links from `node` back to where its value came from, latest first.

    An operation with several tensors is followed into the first that `prefer` accepts, else the first.
    """
    links: list[Link] = []
    path: tuple[int, ...] = ()
    while node is not None and len(links) < limit:
        if isinstance(node, ast.Starred | ast.NamedExpr):
            node = node.value
            continue
        if isinstance(node, ast.IfExp):
            node = node.body if evaluate(node.test, env) else node.orelse
            continue
        if isinstance(node, ast.Tuple | ast.List) and path and path[0] < len(node.elts):
            node, path = node.elts[path[0]], path[1:]
            continue
        if isinstance(node, ast.GeneratorExp | ast.ListComp) and path:
            turns = evaluate.turns(node, env)
            if turns is None or path[0] >= len(turns):
                return links
            node, env, path = node.elt, turns[path[0]], path[1:]
            continue
        if isinstance(node, ast.Call) and path and _wraps_comprehension(node):
            node = node.args[0]
            continue
        value = evaluate.part(node, path, env) if isinstance(node, ast.expr) else UNKNOWN
        if isinstance(node, ast.Name):
            found = env.definition(node.id)
            if found is not None:
                statement, target, earlier = found
                where = place(target, node.id)
                right = getattr(statement, "value", None)
                links.append(Link("def", node.id, statement, UNKNOWN, value, env))
                if where is None or right is None:
                    return links
                if isinstance(statement, ast.AugAssign):
                    name = OPERATORS.get(type(statement.op), "binary")
                    before = earlier.lookup(node.id)
                    links.append(Link("op", name, statement, before, value, earlier))
                    node, env = ast.copy_location(ast.Name(node.id, ast.Load()), statement), earlier
                    continue
                node, env, path = right, earlier, (*where, *path)
                continue
            comprehension = _bound(node, env)
            if comprehension is not None:
                node, env, path = comprehension
                continue
            links.append(Link("argument", node.id, node, UNKNOWN, value, env))
            return links
        if isinstance(node, ast.Attribute) and node.attr not in ("T", "mT", "H", "mH", "data"):
            links.append(Link("attribute", node.attr, node, UNKNOWN, value, env))
            return links
        known = operation(node, env, evaluate)
        if known is None:
            links.append(Link("end", type(node).__name__, node, UNKNOWN, value, env))
            return links
        name, operands = known
        inputs = [(operand, evaluate(operand, env)) for operand in operands]
        tensors = [(operand, item) for operand, item in inputs if is_tensor(item)]
        for operand, item in inputs:
            if isinstance(item, list | tuple) and item and all(map(is_tensor, item)):
                tensors.append((operand, item[0]))
        chosen = next(
            ((o, i) for o, i in tensors if prefer is not None and prefer(i)), tensors[0] if tensors else None
        )
        if isinstance(prefer, Follow) and prefer.keys and name in ("matmul", "bmm") and tensors:
            chosen, prefer = tensors[-1], Follow(prefer.size)
        if chosen is None or name.startswith("new_") or name.endswith("_like"):
            links.append(Link("end", name, node, UNKNOWN, value, env))
            return links
        links.append(Link("op", name, node, chosen[1], value, env))
        if name == "getitem" and isinstance(node, ast.Subscript):
            index = evaluate(node.slice, env)
            path = ()
            if not is_tensor(evaluate(node.value, env)) and isinstance(index, int):
                path = (index,)
        elif isinstance(chosen[0], ast.List | ast.Tuple):
            path = (0,)
        else:
            path = ()
        node = chosen[0]
    return links


def _wraps_comprehension(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Name)
        and node.func.id in ("tuple", "list")
        and len(node.args) == 1
        and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp | ast.Tuple | ast.List)
    )


def _bound(node: ast.Name, env: Env) -> tuple[ast.AST, Env, tuple[int, ...]] | None:
    """Where a comprehension's variable comes from: its iterable."""
    from attnscope.crashes.values import FrameEnv

    base = env
    while isinstance(base, Overlay):
        if node.id in base.names:
            loop = _loop_of(node, base)
            return (loop, base.base, ()) if loop is not None else None
        base = base.base
    if isinstance(base, FrameEnv) and node.id in base.frame.inner:
        loop = _loop_of(node, base)
        if loop is not None:
            return loop, FrameEnv(_outside(base), base.where), ()
    return None


def _outside(env: Any) -> Any:
    """The same frame without the comprehension's own names."""
    import copy

    frame = copy.copy(env.frame)
    frame.inner = {}
    return frame


def _loop_of(node: ast.Name, env: Env) -> ast.expr | None:
    from attnscope.crashes.values import FrameEnv

    base = env
    while isinstance(base, Overlay):
        base = base.base
    if not isinstance(base, FrameEnv) or base.frame.body.source is None:
        return None
    for parent in base.frame.body.source.ancestors(node):
        if isinstance(parent, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            generator = parent.generators[0]
            names = [n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)]
            if node.id in names:
                if isinstance(generator.iter, ast.Tuple | ast.List) and generator.iter.elts:
                    return _element(generator.iter, node, env)
                return generator.iter
    return None


def _element(items: ast.Tuple | ast.List, node: ast.Name, env: Env) -> ast.expr | None:
    """Which element of a literal iterable the present turn works on, told by the value itself."""
    names: dict[str, Any] = env.names if isinstance(env, Overlay) else {}
    value = names.get(node.id)
    for item in items.elts:
        if isinstance(env, Overlay) and isinstance(item, ast.Name):
            other = env.base.lookup(item.id)
            if is_tensor(other) and is_tensor(value) and other.shape == value.shape:
                return item
    return items.elts[0]


def signature(links: list[Link], text: Callable[[ast.AST], str]) -> list[tuple[str, ast.AST]]:
    """The operations from the source on, each with its arguments, without the tensor's own text."""
    found: list[tuple[str, ast.AST]] = []
    for link in reversed(links):
        if link.kind != "op" or link.name in ("chunk", "split", "unbind", "Linear", "contiguous"):
            continue
        if isinstance(link.node, ast.Call):
            arguments = link.node.args
            if not isinstance(link.node.func, ast.Attribute) or link.name == "call":
                arguments = arguments[1:]
            said = ", ".join(text(arg) for arg in arguments)
        elif isinstance(link.node, ast.Subscript):
            said = text(link.node.slice)
        else:
            said = ""
        found.append((f"{link.name}({said})", link.node))
    return found
