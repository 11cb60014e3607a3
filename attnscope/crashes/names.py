"""The names of a frame: what they are at the fault, and where its source gave them their values."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attnscope.crashes.frames import COMPREHENSIONS, Shot
from attnscope.crashes.syntax import is_before, own_walk
from attnscope.crashes.values import UNKNOWN, wrap
from attnscope.source import SourceFile

BUILTINS: dict[str, Any] = {
    name: getattr(builtins, name)
    for name in "len int float bool max min sum abs round range tuple list".split()
}
Assigned = Callable[[ast.stmt, ast.expr, str, "FrameReader"], Any]
"""What a statement gave to a name: asked of the recording."""


@dataclass(frozen=True, eq=False)
class Env:
    """One point of a frame: its names as they were when the statement `where` began.

    `names` are the variables of a comprehension in its turn `turn` = (which, of how many).
    """

    frame: FrameReader | None = None
    where: ast.stmt | None = None
    names: dict[str, Any] = field(default_factory=dict)
    turn: tuple[int, int] | None = None

    @property
    def file(self) -> SourceFile | None:
        return self.frame.body.source if self.frame is not None else None

    def lookup(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        return UNKNOWN if self.frame is None else self.frame.lookup(name, self.where)

    def definition(self, name: str) -> tuple[ast.stmt, ast.expr, Env] | None:
        """(statement, target, where its right side is read) that gave `name` its value."""
        if name in self.names or self.frame is None:
            return None
        found = self.frame.reaching(name, self.where)
        return None if found is None else (found[0], found[1], Env(self.frame, found[0]))


class FrameReader:
    """One frame of the traceback: its names at the fault, and where its source gave them their values."""

    def __init__(self, shot: Shot, outer: Shot | None, assigned: Assigned) -> None:
        self.shot, self.assigned = shot, assigned
        # A comprehension has a frame of its own; the function around it holds the other names.
        self.body = outer if shot.frame.f_code.co_name in COMPREHENSIONS and outer is not None else shot
        self.inner = shot.locals if self.body is not shot else {}
        self.defs = definitions(self.body.function) if self.body.function is not None else {}

    def env(self) -> Env:
        return Env(self, self.body.statement)

    def reaching(self, name: str, where: ast.stmt | None) -> tuple[ast.stmt, ast.expr] | None:
        if name in self.inner or where is None:
            return None
        earlier = [pair for pair in self.defs.get(name, ()) if is_before(pair[0], where)]
        return earlier[-1] if earlier else None

    def lookup(self, name: str, where: ast.stmt | None) -> Any:
        if name in self.inner:
            return wrap(self.inner[name])
        known = self.body.locals
        if name not in known:
            scope = self.shot.frame.f_globals
            return wrap(scope[name]) if name in scope else BUILTINS.get(name, UNKNOWN)
        fault = self.body.statement
        if where is None or fault is None or where is fault:
            return wrap(known[name])
        reached = self.reaching(name, where)
        start = reached[0] if reached else None
        between = (
            one is not start and not is_before(one, where) and is_before(one, fault)
            for one, _ in self.defs.get(name, ())
        )
        if not any(between):
            return wrap(known[name])
        # Overwritten since: what its statement gave.
        return UNKNOWN if reached is None else self.assigned(reached[0], reached[1], name, self)


def definitions(function: ast.AST) -> dict[str, list[tuple[ast.stmt, ast.expr]]]:
    """Name → its assignments in source order, as (statement, the whole target)."""
    found: dict[str, list[tuple[ast.stmt, ast.expr]]] = {}
    for node in own_walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
            targets = [node.target]
        elif isinstance(node, ast.With):
            targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    found.setdefault(name.id, []).append((node, target))  # type: ignore[arg-type]
    return found


def place(target: ast.expr, name: str) -> tuple[int, ...] | None:
    """Where in an unpacking target a name stands: `()` for `x = …`, `(1,)` for `a, x = …`."""
    if isinstance(target, ast.Name):
        return () if target.id == name else None
    if isinstance(target, ast.Tuple | ast.List):
        if any(isinstance(item, ast.Starred) for item in target.elts):
            return None
        for index, item in enumerate(target.elts):
            inner = place(item, name)
            if inner is not None:
                return (index, *inner)
    return None
