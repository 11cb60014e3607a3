"""Reading Python source: where an instruction stands, which AST node it is, and what its line assigns.

`co_positions()` and `ast` both count columns in UTF-8 bytes from 0; a `Span` counts characters from 1.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType

from attnscope.schema import Span

Position = tuple[int, int, int, int]  # line, column, end line, end column: lines from 1, bytes from 0

_POSITIONS: dict[int, tuple[CodeType, list[Position | None]]] = {}
_FILES: dict[str, tuple[tuple[str, ...], SourceFile | None]] = {}


@dataclass(frozen=True)
class SourceFile:
    """A parsed file: its lines, its tree, each node's parent, and the nodes by exact position."""

    name: str
    lines: tuple[str, ...]
    tree: ast.Module
    parents: dict[ast.AST, ast.AST]
    exact: dict[Position, ast.AST]
    calls_by_end: dict[tuple[int, int], ast.Call]

    def span(self, position: Position) -> Span:
        """The position in characters from 1."""
        line, column, end_line, end_column = position
        return Span(
            self.name, line, self._character(line, column), end_line, self._character(end_line, end_column)
        )

    def _character(self, line: int, byte: int) -> int:
        if not 1 <= line <= len(self.lines):
            return byte + 1
        return (
            len(self.lines[line - 1].encode("utf-8", "surrogatepass")[:byte].decode("utf-8", "replace")) + 1
        )

    def node_span(self, node: ast.AST) -> Span:
        """The span of an AST node that has a position."""
        position = position_of(node)
        if position is None:
            raise ValueError(f"{type(node).__name__} has no position")
        return self.span(position)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parents of `node`, innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost `def` around `node` (lambdas and comprehensions are looked through)."""
        for parent in self.ancestors(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                return parent
        return None


def position_of(node: ast.AST) -> Position | None:
    """The exact position of a node, or None for nodes without one."""
    end_line = getattr(node, "end_lineno", None)
    end_column = getattr(node, "end_col_offset", None)
    if end_line is None or end_column is None:
        return None
    return (node.lineno, node.col_offset, end_line, end_column)  # type: ignore[attr-defined]


def parse(filename: str) -> SourceFile | None:
    """The parsed source of a file (or of a notebook cell that `linecache` knows); None if unreadable."""
    lines = tuple(linecache.getlines(filename))
    known = _FILES.get(filename)
    if known is not None and known[0] == lines:
        return known[1]
    parsed = _parse(filename, lines) if lines else None
    _FILES[filename] = (lines, parsed)
    return parsed


def _parse(filename: str, lines: tuple[str, ...]) -> SourceFile | None:
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    parents: dict[ast.AST, ast.AST] = {}
    exact: dict[Position, ast.AST] = {}
    calls: dict[tuple[int, int], ast.Call] = {}
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            parents[child] = parent
        position = position_of(parent)
        if position is None:
            continue
        # A statement that is nothing but an expression has the expression's position; the expression wins.
        if position not in exact or isinstance(parent, ast.expr):
            exact[position] = parent
        if isinstance(parent, ast.Call):
            calls[(position[2], position[3])] = parent
    plain = tuple(line.rstrip("\r\n") for line in lines)
    return SourceFile(filename, plain, tree, parents, exact, calls)


def class_of(cls: type) -> tuple[SourceFile, ast.ClassDef] | None:
    """The file and the `class` statement of a class: the one that holds its methods, not any of its name."""
    codes = _codes(cls)
    last: tuple[SourceFile, ast.ClassDef] | None = None
    for name in dict.fromkeys([*(code.co_filename for code in codes), *_file_of(cls)]):
        parsed = parse(name)
        if parsed is None:
            continue
        named = [
            node
            for node in ast.walk(parsed.tree)
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        ]
        lines = [code.co_firstlineno for code in codes if code.co_filename == name]
        held = [
            node
            for node in named
            if any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)
        ]
        if held:
            return parsed, max(held, key=lambda node: node.lineno)  # the innermost
        if named and last is None:
            last = parsed, named[-1]  # of two the later statement is the one that counts
    return last


def class_file(cls: type) -> str | None:
    """The file in which a class stands, also where it cannot be parsed."""
    found = class_of(cls)
    if found is not None:
        return found[0].name
    return next(iter([*(code.co_filename for code in _codes(cls)), *_file_of(cls)]), None)


def _codes(cls: type) -> list[CodeType]:
    """The code of the methods that the class itself defines, as they stood before decorators."""
    found = []
    for item in list(vars(cls).values()):
        if isinstance(item, property):
            item = item.fget
        elif isinstance(item, classmethod | staticmethod):
            item = item.__func__
        seen: set[int] = set()
        while isinstance(item, FunctionType) and id(item) not in seen:
            seen.add(id(item))
            inner = vars(item).get("__wrapped__")
            if not isinstance(inner, FunctionType):
                found.append(item.__code__)
            item = inner
    return found


def _file_of(cls: type) -> list[str]:
    try:
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return []
    return [file] if file else []


def position_at(code: CodeType, lasti: int) -> Position | None:
    """Where the instruction at byte offset `lasti` of `code` stands; None where Python does not say."""
    known = _POSITIONS.get(id(code))
    if known is None:
        table: list[Position | None] = [
            (line, column, end_line, end_column)
            if line is not None and column is not None and end_line is not None and end_column is not None
            else ((line, 0, line, 0) if line is not None else None)
            for line, end_line, column, end_column in code.co_positions()
        ]
        # The code object is kept beside its table, so that its id cannot come to mean another one.
        known = _POSITIONS[id(code)] = (code, table)
    table = known[1]
    index = lasti // 2
    return table[index] if 0 <= index < len(table) else None


def span_of(code: CodeType, lasti: int) -> Span:
    """The span of an instruction, in characters from 1."""
    position = position_at(code, lasti) or (code.co_firstlineno, 0, code.co_firstlineno, 0)
    parsed = parse(code.co_filename)
    if parsed is not None:
        return parsed.span(position)
    line, column, end_line, end_column = position
    return Span(code.co_filename, line, column + 1, end_line, end_column + 1)


def node_at(code: CodeType, lasti: int) -> tuple[SourceFile, ast.AST] | None:
    """The file and the AST node that an instruction evaluates, or None if it cannot be told."""
    position = position_at(code, lasti)
    parsed = parse(code.co_filename)
    if position is None or parsed is None:
        return None
    node = parsed.exact.get(position)
    if node is None:
        # In a chain over several lines Python places a method call at the line of its attribute.
        node = parsed.calls_by_end.get((position[2], position[3]))
    return (parsed, node) if node is not None else None


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a node's value is assigned to.

    `names` has one entry, or, where the node is the element of a comprehension that is unpacked or kept,
    one for each turn (the n-th turn assigns `names[n % len(names)]`). An empty tuple: nothing.
    """

    names: tuple[str, ...] = ()
    per_turn: bool = False

    def at(self, turn: int) -> str | None:
        """The variable that the given turn (from 0) of the enclosing comprehension assigns."""
        if not self.names:
            return None
        if self.per_turn and len(self.names) == 1:
            return f"{self.names[0]}[{turn}]"
        return self.names[turn % len(self.names)]


def assigned(file: SourceFile, node: ast.AST) -> Assigned:
    """The variable that the line assigns with the value of `node`; nothing inside a chain."""
    if isinstance(node, ast.AugAssign):
        return Assigned((ast.unparse(node.target),))
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return Assigned((ast.unparse(node.value),))
    if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Store):
        return Assigned((_target_text(node),))
    picks: list[int | None] = []  # None: the turn of a comprehension
    current = node
    for parent in file.ancestors(node):
        if isinstance(parent, ast.IfExp) and current is not parent.test:
            pass
        elif isinstance(parent, ast.Tuple | ast.List) and isinstance(parent.ctx, ast.Load):
            picks.append(next(i for i, item in enumerate(parent.elts) if item is current))
        elif isinstance(parent, ast.ListComp | ast.GeneratorExp | ast.SetComp) and parent.elt is current:
            picks.append(None)
        elif isinstance(parent, ast.Call) and _is_sequence_of(parent, current):
            pass
        elif isinstance(parent, ast.NamedExpr):
            return _pick(parent.target, picks)
        elif isinstance(parent, ast.Assign):
            return _pick(parent.targets[0], picks)
        elif isinstance(parent, ast.AnnAssign) and parent.value is current:
            return _pick(parent.target, picks)
        else:
            return Assigned()
        current = parent
    return Assigned()


def receiver(node: ast.AST) -> str | None:
    """The text of `x` in a bare statement `x.method_(…)`: what an in-place call rewrites."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        value = node.func.value
        if isinstance(value, ast.Name | ast.Attribute):
            return ast.unparse(value)
    return None


def _is_sequence_of(call: ast.Call, argument: ast.AST) -> bool:
    return (
        isinstance(call.func, ast.Name)
        and call.func.id in ("tuple", "list")
        and len(call.args) == 1
        and call.args[0] is argument
        and isinstance(argument, ast.GeneratorExp | ast.ListComp)
    )


def _target_text(target: ast.expr) -> str:
    if isinstance(target, ast.Tuple | ast.List):
        return ", ".join(ast.unparse(item) for item in target.elts)
    return ast.unparse(target)


def _pick(target: ast.expr, picks: list[int | None]) -> Assigned:
    """Follow `picks` (innermost first) into an unpacking target."""
    current = target
    for position, pick in enumerate(reversed(picks)):
        last = position == len(picks) - 1
        if not isinstance(current, ast.Tuple | ast.List):
            text = _target_text(current)
            if pick is None and last:
                return Assigned((text,), per_turn=True)
            return Assigned((f"{text}[{pick}]",)) if last and pick is not None else Assigned()
        if any(isinstance(item, ast.Starred) for item in current.elts):
            return Assigned()
        if pick is None:
            return Assigned(tuple(_target_text(item) for item in current.elts)) if last else Assigned()
        if pick >= len(current.elts):
            return Assigned()
        current = current.elts[pick]
    return Assigned((_target_text(current),))
