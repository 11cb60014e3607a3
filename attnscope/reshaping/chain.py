"""From the words of a chain to its steps: `view(6, 2, 8).transpose(0, 1)`, or lines of code as they are.

The text is parsed as Python and never run: names of one tensor, numbers, and the methods of `moves.py` alone.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

from attnscope.errors import UsageError
from attnscope.reshaping.cures import cures
from attnscope.reshaping.moves import (
    FUNCTIONS,
    METHODS,
    PROPERTIES,
    SPELLINGS,
    Impossible,
    NotKnown,
    Result,
    getitem,
    listed,
)
from attnscope.reshaping.patterns import rearrange, repeat
from attnscope.reshaping.strided import MOST, Strided, counted
from attnscope.schema import Arrangement, ReshapeStep, Reshaping
from attnscope.text import unknown, visible

EINOPS: dict[str, Callable[..., Strided]] = {"rearrange": rearrange, "repeat": repeat}
Memory = Literal["view", "copy", "same", "none"]
LONGEST = 10_000
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class _Stopped(Exception):
    """A step cannot be done: the steps before it, and it, are the result."""


def follow(chain: str, shape: Sequence[int]) -> Reshaping:
    """The steps of a chain on a tensor of that shape whose elements are numbered from 0 in memory order.

    Raises UsageError for a text that is no such chain. A step that torch would refuse ends the result, with
    the reason and with what would work.
    """
    sizes = tuple(shape)
    if not sizes or any(size < 1 for size in sizes):
        raise UsageError(
            f"{listed(sizes)} is no shape", "sizes from 1 on would work, for example --shape 6,16"
        )
    if prod(sizes) > MOST:
        raise UsageError(f"{prod(sizes):,} elements are too many", f"up to {MOST:,} would work")
    run = _Run(_parsed(chain), counted(sizes))
    run.statements()
    return Reshaping(chain.strip(), sizes, arranged(run.input), tuple(run.steps))


def arranged(x: Strided) -> Arrangement:
    """A tensor of element numbers as data."""
    return Arrangement(x.shape, x.strides, x.offset, x.contiguous, x.numbers.copy(), x.memory)


def _parsed(chain: str) -> ast.Module:
    text = chain.strip().removeprefix(".")
    if not text:
        raise UsageError("there is no chain", 'for example "view(6, 2, 8).transpose(0, 1)"')
    if len(text) > LONGEST:
        raise UsageError(f"a chain of {len(text):,} characters is too long", f"up to {LONGEST:,} would work")
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(
            f"`{visible(text[:60])}` is no chain of calls", 'for example "view(6, 2, 8).transpose(0, 1)"'
        ) from None


class _Run:
    """One walk through the parsed text; every call that was reached is a step."""

    def __init__(self, tree: ast.Module, x: Strided) -> None:
        self.tree = tree
        self.input = x
        self.names: dict[str, Any] = {}
        self.free: str | None = None
        self.steps: list[ReshapeStep] = []

    def statements(self) -> None:
        try:
            for line in self.tree.body:
                self._statement(line)
        except _Stopped:
            pass
        except RecursionError:
            raise UsageError("the chain is nested too deeply", "a shorter chain would work") from None
        if not self.steps:
            raise UsageError("the chain has no step", 'for example "view(6, 2, 8).transpose(0, 1)"')

    def _statement(self, line: ast.stmt) -> None:
        if isinstance(line, ast.Expr):
            self._value(line.value)
            return
        if not isinstance(line, ast.Assign) or len(line.targets) != 1:
            raise self._odd(line)
        target, value = line.targets[0], self._value(line.value)
        if isinstance(target, ast.Name):
            self.names[target.id] = value
            return
        if not isinstance(target, ast.Tuple) or not all(isinstance(name, ast.Name) for name in target.elts):
            raise self._odd(line)
        if not isinstance(value, tuple) or len(value) != len(target.elts):
            many = f"{len(value)} parts" if isinstance(value, tuple) else "one tensor"
            raise UsageError(f"`{_said(line)}` has {len(target.elts)} names for {many}", "give each its name")
        for name, part in zip(target.elts, value, strict=True):
            assert isinstance(name, ast.Name)
            self.names[name.id] = part

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value) if (
                value is Ellipsis or value is None or isinstance(value, int | str)
            ):
                return value
            case ast.Name():
                return self._name(node)
            case ast.Tuple() | ast.List():
                return tuple(self._value(part) for part in node.elts)
            case ast.UnaryOp(op=ast.USub()):
                return -self._integer(node.operand)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                return self._arithmetic(node)
            case ast.Slice():
                return slice(*(None if part is None else self._integer(part)
                               for part in (node.lower, node.upper, node.step)))  # fmt: skip
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
        raise self._odd(node)

    def _arithmetic(self, node: ast.BinOp) -> int:
        one, two = self._integer(node.left), self._integer(node.right)
        try:
            return _ARITHMETIC[type(node.op)](one, two)
        except ZeroDivisionError:
            raise UsageError(f"`{_said(node)}` divides by 0") from None

    def _integer(self, node: ast.expr) -> int:
        value = self._value(node)
        if not isinstance(value, int):
            raise UsageError(f"`{_said(node)}` is no whole number")
        return value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            return self.names[node.id]
        if node.id in PROPERTIES:
            return self._step(node.id, PROPERTIES[node.id], (self.input,), {}, self.input)
        if node.id in METHODS or node.id in EINOPS:
            raise UsageError(f"`{node.id}` is not called", f"write {node.id}(…)")
        if self.free not in (None, node.id):
            raise UsageError(
                f"`{self.free}` and `{node.id}` are both unknown",
                "a chain is of one tensor, whose shape is --shape",
            )
        self.free = node.id
        return self.input

    def _attribute(self, node: ast.Attribute) -> Any:
        x = self._tensor(node.value)
        if node.attr == "shape":
            return x.shape
        if node.attr in PROPERTIES:
            return self._step(f".{node.attr}", PROPERTIES[node.attr], (x,), {}, x)
        if node.attr in METHODS:
            raise UsageError(f"`.{node.attr}` is not called", f"write .{node.attr}(…)")
        raise unknown("attribute", node.attr, (*PROPERTIES, *METHODS, "shape"))

    def _subscript(self, node: ast.Subscript) -> Any:
        value, index = self._value(node.value), self._value(node.slice)
        parts = index if isinstance(index, tuple) else (index,)
        if isinstance(node.slice, ast.List) or any(isinstance(part, bool | str | tuple) for part in parts):
            raise self._odd(node)  # picking elements one by one is no view
        if isinstance(value, Strided):
            return self._step(f"[{_said(node.slice)}]", getitem, (value, index), {}, value)
        if not isinstance(value, tuple) or not isinstance(index, int | slice):
            raise self._odd(node)
        try:
            return value[index]
        except IndexError:
            raise UsageError(f"there is no part {index}", f"there are {len(value)} parts, from 0") from None

    def _call(self, node: ast.Call) -> Any:
        name, subject = self._called(node.func)
        args = [self._value(arg) for arg in self._plain(node.args)]
        kwargs = {SPELLINGS.get(k.arg or "", k.arg or ""): self._value(k.value) for k in node.keywords}
        text = f"{'' if subject is None else '.'}{name}({_args(node)})"
        if name == "size" and subject is not None:
            return subject.shape[args[0]] if args else subject.shape
        if name in FUNCTIONS and subject is None:
            return self._step(text, FUNCTIONS[name], args, kwargs, self.input)
        pattern = next((arg for arg in args if isinstance(arg, str)), None)
        table: dict[str, Any] = EINOPS if name in EINOPS and pattern is not None else METHODS
        if name not in table:
            raise unknown("step", name, (*METHODS, *FUNCTIONS, *EINOPS))
        if subject is None:
            subject = args.pop(0) if args and isinstance(args[0], Strided) else self.input
        return self._step(text, table[name], (subject, *args), kwargs, subject)

    def _called(self, function: ast.expr) -> tuple[str, Strided | None]:
        """The name of what is called, and the tensor whose method it is (None for a function)."""
        if isinstance(function, ast.Name):
            return function.id, None
        if isinstance(function, ast.Attribute):
            if isinstance(function.value, ast.Name) and function.value.id in ("torch", "einops"):
                return function.attr, None
            return function.attr, self._tensor(function.value)
        raise self._odd(function)

    def _tensor(self, node: ast.expr) -> Strided:
        value = self._value(node)
        if isinstance(value, tuple) and value and isinstance(value[0], Strided):
            raise UsageError(f"`{_said(node)}` gives {len(value)} parts", "pick one, for example with [0]")
        if not isinstance(value, Strided):
            raise UsageError(f"`{_said(node)}` is no tensor")
        return value

    def _plain(self, args: Sequence[ast.expr]) -> list[ast.expr]:
        if any(isinstance(arg, ast.Starred) for arg in args):
            raise UsageError("`*` has no use in a chain", "write the sizes out")
        return list(args)

    def _step(
        self, text: str, move: Callable[..., Result], args: Sequence[Any], kwargs: dict[str, Any], x: Strided
    ) -> Result:
        op = getattr(move, "__name__", "")
        try:
            made = move(*args, **kwargs)
        except TypeError:
            raise UsageError(f"`{visible(text)}` has arguments that it does not take") from None
        except NotKnown as error:
            raise UsageError(f"`{visible(text)}`: {error}") from None
        except Impossible as error:
            bare = not text.startswith((".", "["))  # the first step of a chain without a name
            offered = tuple(cure.removeprefix(".") if bare else cure for cure in cures(move, args, kwargs))
            self.steps.append(ReshapeStep(text, op, "none", (), x.shape, str(error), offered))
            raise _Stopped from None
        parts = made if isinstance(made, tuple) else (made,)
        shares = parts[0].memory is x.memory
        memory: Memory = "same" if parts[0] is x else "view" if shares else "copy"
        self.steps.append(ReshapeStep(text, op, memory, tuple(arranged(part) for part in parts), x.shape))
        return made

    def _odd(self, node: ast.AST) -> UsageError:
        return UsageError(
            f"`{_said(node)}` has no place in a chain", 'for example "view(6, 2, 8).transpose(0, 1)"'
        )


def _said(node: ast.AST) -> str:
    text = visible(ast.unparse(node))
    return text if len(text) <= 60 else text[:59] + "…"


def _args(node: ast.Call) -> str:
    parts = [ast.unparse(arg) for arg in node.args]
    parts += [f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in node.keywords]
    return ", ".join(parts)
