"""What an expression in the user's source stands for: a known dimension, or at least a letter.

`b, t, c = x.shape` binds names to the dimensions of `x`; `hs = C // self.n_head`, an assignment in the same
function or in the constructor, says what a name means; the vocabulary of the field is asked last.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from attnscope.axes.dims import Dim, Dims, Space
from attnscope.axes.vocabulary import letter_of as word_letter
from attnscope.source import SourceFile

Bound = Dim | Dims
_DEPTH = 4


class Scope:
    """Names bound to dimensions while a recording is read from its start."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._bound: dict[tuple[int, str], Bound] = {}
        self._shapes: dict[ast.AST, Bound] = {}
        self._definitions: dict[int, dict[str, ast.expr]] = {}
        self._attributes: dict[int, dict[str, ast.expr]] = {}

    # -- binding ---------------------------------------------------------------------------------------

    def saw_size(self, file: SourceFile, node: ast.AST, bound: Bound) -> None:
        """`x.shape`, `x.size(1)` or `len(x)` was evaluated at `node`."""
        self._shapes[node] = bound
        current: ast.AST = node
        value: Bound = bound
        for parent in file.ancestors(node):
            if isinstance(parent, ast.Subscript) and parent.value is current:
                picked = _pick(value, parent.slice)
                if picked is None:
                    return
                value = picked
                self._shapes[parent] = value
            elif isinstance(parent, ast.Tuple) and isinstance(parent.ctx, ast.Load):
                statement = file.parents.get(parent)
                place = parent.elts.index(current) if current in parent.elts else -1
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
                    targets = statement.targets[0].elts
                    if len(targets) == len(parent.elts) and place >= 0:
                        self._bind(file, targets[place], value)
                return
            elif isinstance(parent, ast.Assign | ast.NamedExpr | ast.AnnAssign):
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                for target in targets:
                    self._bind(file, target, value)
                return
            else:
                return
            current = parent

    def _bind(self, file: SourceFile, target: ast.expr, value: Bound) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, Dim):
                return
            values = list(value)
            starred = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
            if starred is not None:
                after = len(target.elts) - starred - 1
                middle = tuple(values[starred : len(values) - after])
                rest = values[len(values) - after :] if after else []
                values = [*values[:starred], middle, *rest]  # type: ignore[list-item]
            for item, dim in zip(target.elts, values, strict=False):
                self._bind(file, item.value if isinstance(item, ast.Starred) else item, dim)
        elif isinstance(target, ast.Name):
            self._bound[(self._place(file, target), target.id)] = value

    def _place(self, file: SourceFile, node: ast.AST) -> int:
        return id(file.function_of(node) or file.tree)

    # -- asking ----------------------------------------------------------------------------------------

    def dims_of(self, file: SourceFile, expr: ast.AST) -> Bound | None:
        """The dimension (or tuple of them) that an expression is known to be."""
        if expr in self._shapes:
            return self._shapes[expr]
        if isinstance(expr, ast.Name):
            place: ast.AST | None = expr
            while place is not None:
                function = file.function_of(place)
                bound = self._bound.get((id(function or file.tree), expr.id))
                if bound is not None:
                    return bound
                place = function
            return None
        if isinstance(expr, ast.Subscript):
            whole = self.dims_of(file, expr.value)
            return _pick(whole, expr.slice) if whole is not None else None
        return None

    def dim(self, file: SourceFile, expr: ast.AST, size: int) -> Dim | None:
        """The dimension of `size` that an expression names; None if it names none of that size."""
        known = self.dims_of(file, expr)
        if isinstance(known, Dim):
            return known if known.size == size else None
        letter = self.letter(file, expr)
        return self._space.named(letter, size) if letter is not None else None

    def letter(self, file: SourceFile, expr: ast.AST, depth: int = 0) -> str | None:
        """The letter for an expression: `self.n_head` → H, `C // self.H` → D."""
        if depth > _DEPTH:
            return None
        known = self.dims_of(file, expr)
        if isinstance(known, Dim):
            label = known.label
            return label if label is not None and len(label) == 1 else None
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.FloorDiv | ast.Div):
            by = self.letter(file, expr.right, depth + 1)
            if by in ("H", "D"):
                of = self.letter(file, expr.left, depth + 1)
                return {"H": "D", "D": "H"}[by] if of not in ("H", "G", "T", "S", "B") else None
            return None
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Mult):
            pair = {self.letter(file, expr.left, depth + 1), self.letter(file, expr.right, depth + 1)}
            return "C" if pair == {"H", "D"} else None
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and len(expr.args) == 1:
            return self.letter(file, expr.args[0], depth + 1) if expr.func.id == "int" else None
        if isinstance(expr, ast.Name):
            meaning = self.local(file, expr)
            found = self.letter(file, meaning, depth + 1) if meaning is not None else None
            return found or word_letter(expr.id)
        if isinstance(expr, ast.Attribute):
            meaning = self._attribute(file, expr)
            found = self.letter(file, meaning, depth + 1) if meaning is not None else None
            return found or word_letter(expr.attr)
        if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
            key = expr.slice.value
            return word_letter(key) if isinstance(key, str) else None
        return None

    def multiple(self, file: SourceFile, expr: ast.expr, depth: int = 0) -> int | None:
        """The whole number k in `k * something`, also through a name that stands for it; else None."""
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Mult):
            for side in (expr.left, expr.right):
                count = _integer(side)
                if count is not None and count > 1:
                    return count
        if isinstance(expr, ast.Name) and depth < _DEPTH:
            meaning = self.local(file, expr)
            return self.multiple(file, meaning, depth + 1) if meaning is not None else None
        return None

    def local(self, file: SourceFile, name: ast.Name) -> ast.expr | None:
        """What the function around `name` assigns to it."""
        function = file.function_of(name)
        if function is None:
            return None
        known = self._definitions.get(id(function))
        if known is None:
            known = self._definitions[id(function)] = dict(_assignments(function, ast.Name))
        return known.get(name.id)

    def _attribute(self, file: SourceFile, attribute: ast.Attribute) -> ast.expr | None:
        """What the class around `self.name` assigns to it."""
        if not (isinstance(attribute.value, ast.Name) and attribute.value.id == "self"):
            return None
        around = next((p for p in file.ancestors(attribute) if isinstance(p, ast.ClassDef)), None)
        return self.attributes(around).get(attribute.attr) if around is not None else None

    def attributes(self, around: ast.ClassDef) -> dict[str, ast.expr]:
        """Each `self.name = expression` of a class, the last one winning."""
        known = self._attributes.get(id(around))
        if known is None:
            known = self._attributes[id(around)] = dict(_assignments(around, ast.Attribute))
        return known


def _assignments(where: ast.AST, kind: type[ast.Name] | type[ast.Attribute]) -> list[tuple[str, ast.expr]]:
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(where):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs: Sequence[tuple[ast.expr, ast.expr]] = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                if not isinstance(node.value, ast.Tuple) or len(target.elts) != len(node.value.elts):
                    continue
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for item, value in pairs:
                if isinstance(item, kind):
                    name = item.id if isinstance(item, ast.Name) else item.attr
                    found.append((name, value))
    return found


def _pick(whole: Bound, index: ast.expr) -> Bound | None:
    if isinstance(whole, Dim):
        return None
    place = _integer(index)
    if place is not None:
        return whole[place] if -len(whole) <= place < len(whole) else None
    if isinstance(index, ast.Slice) and index.step is None:
        start, stop = index.lower, index.upper
        low = _integer(start) if start is not None else None
        high = _integer(stop) if stop is not None else None
        if (start is None or low is not None) and (stop is None or high is not None):
            return whole[low:high]
    return None


def _integer(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _integer(node.operand)
        return -inner if inner is not None else None
    return None
