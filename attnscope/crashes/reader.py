"""What an expression was worth at the fault: read from the frame, or from the recorded step that stood there.

Names, attributes, sizes and plain numbers are read from the frame. A tensor that an expression made is what
the recorder saw at that expression; where nothing was seen (a helper of the user's gave it), what the step
around it was given.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, ModuleType
from typing import Any

import torch

from attnscope.crashes.names import BUILTINS, Env, FrameReader, place
from attnscope.crashes.values import UNKNOWN, is_module, is_parts, is_plain, is_tensor, read, twin_of, wrap
from attnscope.ops.outcomes import factory
from attnscope.schema import Step

_PARTS = ("chunk", "split", "split_with_sizes", "tensor_split", "unbind")
_SIZES = ("size", "dim", "numel", "stride", "ndimension", "is_contiguous", "is_floating_point")
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def operands(node: ast.AST) -> list[ast.expr]:
    """What an operation is given, in order: the receiver of a method, arguments, keywords' values."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Subscript | ast.Attribute):
        return [node.value]
    if isinstance(node, ast.Call):
        given: list[ast.expr] = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        for argument in (*node.args, *(word.value for word in node.keywords)):
            given += argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]
        return given
    return []


class Reader:
    """Reads expressions of one file; one for each diagnosis. `steps` are the recorded ones."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps: dict[tuple[str, int, int, int, int], list[Step]] = {}
        for step in steps:
            span = step.span
            key = (span.file, span.line, span.column, span.end_line, span.end_column)
            self.steps.setdefault(key, []).append(step)
        # The nodes are kept beside the values, so that the ids in the keys cannot come to mean others.
        self.known: dict[tuple[object, ...], tuple[Any, ast.AST, Env]] = {}
        self.depth = 0

    def __call__(self, node: ast.AST | None, env: Env) -> Any:
        value = self._direct(node, env)
        if value is UNKNOWN and isinstance(node, ast.expr):
            value = self._given(node, env)
        return value

    def _direct(self, node: ast.AST | None, env: Env) -> Any:
        if node is None or self.depth > 60:
            return UNKNOWN
        key = (id(node), id(env.frame), id(env.where), env.turn, *map(id, env.names.values()))
        if key not in self.known:
            self.depth += 1
            try:
                method = getattr(self, "_" + type(node).__name__, None)
                value = UNKNOWN if method is None else method(node, env)
            except Exception:
                value = UNKNOWN
            finally:
                self.depth -= 1
            self.known[key] = (self._seen(node, env) if value is UNKNOWN else value, node, env)
        return self.known[key][0]

    # -- what was recorded ---------------------------------------------------------------------------

    def _step(self, node: ast.AST, env: Env) -> Step | None:
        """The last step (in a comprehension: the turn's) where an expression stands."""
        file = env.file
        if file is None or not hasattr(node, "end_lineno"):
            return None
        span = file.node_span(node)
        found = self.steps.get((span.file, span.line, span.column, span.end_line, span.end_column), [])
        if env.turn is not None and len(found) >= env.turn[1]:
            return found[env.turn[0] - env.turn[1]]
        return found[-1] if found else None

    def _seen(self, node: ast.AST, env: Env) -> Any:
        """What the step at an expression gave."""
        step = self._step(node, env)
        made = [twin_of(info) for info in step.outputs] if step is not None and step.error is None else []
        if step is None or not made:
            return UNKNOWN
        return made[0] if len(made) == 1 and step.op not in _PARTS else tuple(made)

    def _given(self, node: ast.expr, env: Env) -> Any:
        """What the step around an expression was given in its place."""
        file = env.file
        around = file.parents.get(node) if file is not None else None
        while isinstance(around, ast.Attribute | ast.keyword | ast.Tuple | ast.List) and file is not None:
            if isinstance(around, ast.Attribute) and self._step(around, env) is not None:
                break
            around = file.parents.get(around)
        step = self._step(around, env) if around is not None else None
        if step is None or around is None:
            return UNKNOWN
        tensors = [
            one
            for one in operands(around)
            if one is node or (value := self._direct(one, env)) is UNKNOWN or is_tensor(value)
        ]
        if (
            isinstance(around, ast.Call)
            and tensors
            and tensors[0] is not node
            and len(tensors) > len(step.inputs)
        ):
            tensors = tensors[1:]  # `torch.cat(…)`, `self.norm(…)`: what is before the dot is no tensor
        if not any(one is node for one in tensors) or len(tensors) != len(step.inputs):
            return UNKNOWN
        return twin_of(step.inputs[next(i for i, one in enumerate(tensors) if one is node)])

    # -- assignments and comprehensions --------------------------------------------------------------

    def assigned(self, statement: ast.stmt, target: ast.expr, name: str, frame: FrameReader) -> Any:
        """What a statement gave to `name`."""
        path, env = place(target, name), Env(frame, statement)
        if path is None or not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return UNKNOWN
        if isinstance(statement, ast.AugAssign):
            return self._seen(statement, env)
        return self.part(statement.value, path, env)

    def part(self, node: ast.expr | None, path: tuple[int, ...], env: Env) -> Any:
        """The value of one part of an expression that is unpacked."""
        if path and isinstance(node, ast.Tuple | ast.List) and not _starred(node.elts):
            return self.part(node.elts[path[0]], path[1:], env) if path[0] < len(node.elts) else UNKNOWN
        inner = unwrapped(node)
        if path and isinstance(inner, ast.GeneratorExp | ast.ListComp):
            turns = self.turns(inner, env)
            return self.part(inner.elt, path[1:], turns[path[0]]) if path[0] < len(turns) else UNKNOWN
        value = self(node, env)
        for index in path:
            if not (is_tensor(value) and value.dim()) and not (is_parts(value) and index < len(value)):
                return UNKNOWN
            value = value[index]
        return value

    def turns(self, node: ast.GeneratorExp | ast.ListComp, env: Env) -> list[Env]:
        """One environment for each turn of a comprehension with one plain `for`; else none."""
        if len(node.generators) != 1 or node.generators[0].ifs:
            return []
        over, target = node.generators[0].iter, node.generators[0].target
        items = self(over, env)
        if is_tensor(items) and items.dim():
            items = [items[0]] * min(int(items.shape[0]), 64)
        if is_module(items):
            items = list((read(items, "_modules") or {}).values())
        if type(items) is range:
            items = list(items[:64])
        if not is_parts(items):
            return []
        turns: list[Env] = []
        for index, item in enumerate(items[:64]):
            names: dict[str, Any] = dict(env.names)
            if not _bind(target, item, names):
                return []
            turns.append(Env(env.frame, env.where, names, (index, len(items))))
        return turns

    # -- expressions ---------------------------------------------------------------------------------

    def _Constant(self, node: ast.Constant, env: Env) -> Any:
        return node.value

    def _Name(self, node: ast.Name, env: Env) -> Any:
        return env.lookup(node.id)

    def _NamedExpr(self, node: ast.NamedExpr, env: Env) -> Any:
        return self._direct(node.value, env)

    def _Starred(self, node: ast.Starred, env: Env) -> Any:
        return self._direct(node.value, env)

    def _Attribute(self, node: ast.Attribute, env: Env) -> Any:
        owner = self(node.value, env)
        return UNKNOWN if owner is UNKNOWN else wrap(read(owner, node.attr))

    def _Tuple(self, node: ast.Tuple | ast.List, env: Env) -> Any:
        found: list[Any] = []
        for one in node.elts:
            value = self(one, env)
            if not isinstance(one, ast.Starred):
                found.append(value)
            elif is_parts(value):
                found += value
            else:
                return UNKNOWN
        return tuple(found) if isinstance(node, ast.Tuple) else found

    _List = _Tuple

    def _GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp, env: Env) -> Any:
        turns = self.turns(node, env)
        return [self(node.elt, turn) for turn in turns] if turns else UNKNOWN

    _ListComp = _GeneratorExp

    def _Slice(self, node: ast.Slice, env: Env) -> Any:
        parts = [None if part is None else self(part, env) for part in (node.lower, node.upper, node.step)]
        return UNKNOWN if any(part is UNKNOWN for part in parts) else slice(*parts)

    def _Subscript(self, node: ast.Subscript, env: Env) -> Any:
        owner, index = self(node.value, env), self(node.slice, env)
        if type(owner) in (tuple, list, dict, str, torch.Size) and is_plain(index):
            return wrap(owner[index])
        if is_module(owner) and type(index) in (int, str):
            children = read(owner, "_modules")
            return children[list(children)[index]] if type(index) is int else children.get(index, UNKNOWN)
        return UNKNOWN

    def _UnaryOp(self, node: ast.UnaryOp, env: Env) -> Any:
        value = self(node.operand, env)
        return _UNARY[type(node.op)](value) if is_plain(value) else UNKNOWN

    def _BinOp(self, node: ast.BinOp, env: Env) -> Any:
        left, right = self(node.left, env), self(node.right, env)
        if not (is_plain(left) and is_plain(right)):
            return UNKNOWN
        numbers = type(left) in (int, float, bool) and type(right) in (int, float, bool)
        joined = isinstance(node.op, ast.Add) and is_parts(left) and is_parts(right)
        huge = isinstance(node.op, ast.Pow) and numbers and (abs(left) > 1e9 or abs(right) > 64)
        return _BINARY[type(node.op)](left, right) if (numbers or joined) and not huge else UNKNOWN

    def _Compare(self, node: ast.Compare, env: Env) -> Any:
        if len(node.ops) != 1:
            return UNKNOWN
        left, right = self(node.left, env), self(node.comparators[0], env)
        if isinstance(node.ops[0], ast.Is | ast.IsNot) and left is not UNKNOWN and right is not UNKNOWN:
            return _COMPARE[type(node.ops[0])](left, right)
        return _COMPARE[type(node.ops[0])](left, right) if is_plain(left) and is_plain(right) else UNKNOWN

    def _BoolOp(self, node: ast.BoolOp, env: Env) -> Any:
        value: Any = UNKNOWN
        for item in node.values:
            value = self(item, env)
            if not is_plain(value):
                return UNKNOWN
            if bool(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def _IfExp(self, node: ast.IfExp, env: Env) -> Any:
        test = self(node.test, env)
        return self(node.body if test else node.orelse, env) if is_plain(test) else UNKNOWN

    def _Call(self, node: ast.Call, env: Env) -> Any:
        """Sizes of tensors and plain functions of numbers; whatever makes tensors was recorded."""
        args = self._Tuple(ast.Tuple(node.args, ast.Load()), env)
        if args is UNKNOWN or node.keywords:
            return UNKNOWN
        if isinstance(node.func, ast.Attribute):
            owner = self(node.func.value, env)
            if is_tensor(owner):
                wanted = node.func.attr in _SIZES and is_plain(args)
                return getattr(torch.Tensor, node.func.attr)(owner, *args) if wanted else UNKNOWN
            name = node.func.attr
            function = read(owner, name) if type(owner) is ModuleType and is_plain(args) else UNKNOWN
            if type(function) is BuiltinFunctionType and any(function is one for one in vars(math).values()):
                return function(*args)
            made = factory(name, args, {}) if vars(torch).get(name) is function else NotImplemented
            return UNKNOWN if made is NotImplemented else made
        function = self(node.func, env)
        if function is len and len(args) == 1 and is_tensor(args[0]):
            return int(args[0].shape[0])
        usable = all(is_plain(arg) or type(arg) is range for arg in args)
        return function(*args) if usable and any(function is one for one in BUILTINS.values()) else UNKNOWN


def unwrapped(node: ast.AST | None) -> ast.AST | None:
    """What `tuple(…)` or `list(…)` is made of."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tuple", "list"):
        return node.args[0] if len(node.args) == 1 else node
    return node


def _bind(target: ast.expr, value: Any, names: dict[str, Any]) -> bool:
    if isinstance(target, ast.Name):
        names[target.id] = value
        return True
    if isinstance(target, ast.Tuple | ast.List) and is_parts(value):
        if len(target.elts) != len(value):
            return False
        return all(_bind(t, v, names) for t, v in zip(target.elts, value, strict=True))
    return False


def _starred(nodes: list[ast.expr]) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)
