"""How a value came to be: from an expression back through its operations to an argument or an attribute."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from attnscope.crashes.names import Env, place
from attnscope.crashes.reader import Reader, unwrapped
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor, read

Kind = Literal["op", "def", "argument", "attribute", "end"]
_VIEWS = ("T", "mT", "H", "mH", "data", "real", "imag")
OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}


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


def operation(node: ast.AST, env: Env, reader: Reader) -> tuple[str, list[ast.expr]] | None:
    """(canonical name, the operands) of an expression that works on tensors, or None."""
    if isinstance(node, ast.BinOp):
        return OPERATORS.get(type(node.op), "binary"), [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return OPERATORS.get(type(node.op), "binary"), [node.target, node.value]
    if isinstance(node, ast.Compare):
        return "compare", [node.left, *node.comparators]
    if isinstance(node, ast.UnaryOp):
        return {ast.Invert: "invert", ast.USub: "neg"}.get(type(node.op), "unary"), [node.operand]
    if isinstance(node, ast.Subscript):
        return "getitem", [node.value]
    if isinstance(node, ast.Attribute) and node.attr in _VIEWS:
        return node.attr, [node.value]
    if not isinstance(node, ast.Call):
        return None
    args = [arg.value if isinstance(arg, ast.Starred) else arg for arg in node.args]
    if not isinstance(node.func, ast.Attribute):
        callee = reader(node.func, env)
        if is_module(callee):
            return type(callee).__name__, args
        return (node.func.id if isinstance(node.func, ast.Name) else "call"), args
    owner = reader(node.func.value, env)
    if is_tensor(owner):
        return node.func.attr, [node.func.value, *args]
    callee = read(owner, node.func.attr) if owner is not UNKNOWN else UNKNOWN
    return (type(callee).__name__ if is_module(callee) else node.func.attr), args


def history(
    node: ast.AST | None,
    env: Env,
    reader: Reader,
    prefer: Callable[[Any], bool] | None = None,
    limit: int = 40,
) -> list[Link]:
    """The links from `node` back to where its value came from, latest first.

    An operation with several tensors is followed into the first that `prefer` accepts, else the first.
    """
    links: list[Link] = []
    path: tuple[int, ...] = ()
    while node is not None and len(links) < limit:
        inner = _inside(node, path, env, reader)
        if inner is not None:
            node, path, env = inner
            continue
        value = reader.part(node, path, env) if isinstance(node, ast.expr) else UNKNOWN
        if isinstance(node, ast.Name):
            found = env.definition(node.id)
            if found is None:
                loop = _loop(node, env, reader)
                if loop is None:
                    return [*links, Link("argument", node.id, node, UNKNOWN, value, env)]
                (node, env), path = loop, ()
                continue
            statement, target, earlier = found
            where, right = place(target, node.id), getattr(statement, "value", None)
            links.append(Link("def", node.id, statement, UNKNOWN, value, env))
            if where is None or right is None:
                return links
            if isinstance(statement, ast.AugAssign):
                name = OPERATORS.get(type(statement.op), "binary")
                links.append(Link("op", name, statement, earlier.lookup(node.id), value, earlier))
                node, env = ast.copy_location(ast.Name(node.id, ast.Load()), statement), earlier
            else:
                node, env, path = right, earlier, (*where, *path)
            continue
        if isinstance(node, ast.Attribute) and node.attr not in _VIEWS:
            return [*links, Link("attribute", node.attr, node, UNKNOWN, value, env)]
        link, node, path = _stage(node, value, env, reader, prefer)
        links.append(link)
        if isinstance(prefer, Follow) and prefer.keys and link.name in ("matmul", "bmm"):
            prefer = Follow(prefer.size)
    return links


def _inside(
    node: ast.AST, path: tuple[int, ...], env: Env, reader: Reader
) -> tuple[ast.AST, tuple[int, ...], Env] | None:
    """What an expression that is no operation stands for: one branch, one element, one turn."""
    if isinstance(node, ast.Starred | ast.NamedExpr):
        return node.value, path, env
    if isinstance(node, ast.IfExp):
        return (node.body if reader(node.test, env) else node.orelse), path, env
    if not path:
        return None
    bare = unwrapped(node)
    if isinstance(bare, ast.Tuple | ast.List) and path[0] < len(bare.elts):
        return bare.elts[path[0]], path[1:], env
    if isinstance(bare, ast.GeneratorExp | ast.ListComp):
        turns = reader.turns(bare, env)
        if path[0] < len(turns):
            return bare.elt, path[1:], turns[path[0]]
    return None


def _stage(
    node: ast.AST, value: Any, env: Env, reader: Reader, prefer: Callable[[Any], bool] | None
) -> tuple[Link, ast.AST | None, tuple[int, ...]]:
    """The link of one operation, the operand to go on with (None: it ends here), and which part of it."""
    known = operation(node, env, reader)
    if known is None:
        return Link("end", type(node).__name__, node, UNKNOWN, value, env), None, ()
    name, operands = known
    tensors = []
    for operand in operands:
        item = reader(operand, env)
        if isinstance(item, list | tuple) and item and all(map(is_tensor, item)):
            item = item[0]
        if is_tensor(item):
            tensors.append((operand, item))
    if not tensors or name.startswith("new_") or name.endswith("_like"):
        return Link("end", name, node, UNKNOWN, value, env), None, ()
    chosen = next((one for one in tensors if prefer is not None and prefer(one[1])), tensors[0])
    if isinstance(prefer, Follow) and prefer.keys and name in ("matmul", "bmm"):
        chosen = tensors[-1]
    path: tuple[int, ...] = ()
    if name == "getitem" and isinstance(node, ast.Subscript):
        index = reader(node.slice, env)
        if type(index) is int and not is_tensor(reader(node.value, env)):
            path = (index,)
    elif isinstance(chosen[0], ast.List | ast.Tuple):
        path = (0,)
    return Link("op", name, node, chosen[1], value, env), chosen[0], path


def _loop(node: ast.Name, env: Env, reader: Reader) -> tuple[ast.expr, Env] | None:
    """Where a comprehension's variable comes from: its iterable, or an element of one written out."""
    frame = env.frame
    if frame is None or frame.body.source is None or not (node.id in env.names or node.id in frame.inner):
        return None
    for parent in frame.body.source.ancestors(node):
        if isinstance(parent, ast.GeneratorExp | ast.ListComp | ast.SetComp):
            generator = parent.generators[0]
            if node.id in [n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)]:
                outside, items = Env(frame, env.where), generator.iter
                if not isinstance(items, ast.Tuple | ast.List) or not items.elts:
                    return items, outside
                if env.turn is not None and env.turn[0] < len(items.elts):
                    return items.elts[env.turn[0]], outside
                value = env.lookup(node.id)
                alike = [
                    one
                    for one in items.elts
                    if is_tensor(other := reader(one, outside))
                    and other.shape == getattr(value, "shape", None)
                ]
                return (alike or items.elts)[0], outside
    return None


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
