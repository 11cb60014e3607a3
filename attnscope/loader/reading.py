"""Which argument the failing operation reads, where one of its operands is made of that argument alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from types import CodeType, FrameType

from attnscope.loader.probe import user_frames
from attnscope.source import SourceFile, node_at


def reads_alone(error: BaseException | None, code: CodeType | None, names: Collection[str]) -> str | None:
    """The one of `names` (arguments of the function with `code`) of which an operand is made, and of no more.

    `scores + mask` and `mask[:, None].view(b, 1, t, t)` read `mask`; a later step on sums of both does not.
    A `raise` or an `assert` reads what its condition reads.
    """
    handed: list[tuple[object, str]] = []
    found: str | None = None
    for frame, _, lasti in user_frames(error):
        if frame.f_code is code:
            given = {n: n for n in names if n in frame.f_code.co_varnames}
        else:
            given = _received(frame, handed)
        place = node_at(frame.f_code, lasti)
        found, handed = None, []
        if place is not None and given:
            known = _derived(*place, frame.f_code, given)
            found = _origin(*place, frame.f_code, known)
            handed = _handed_on(frame, place[1], known)
    return found


def _locals(node: ast.AST, code: CodeType) -> set[str]:
    """The local names that an expression reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in code.co_varnames}


def _derived(file: SourceFile, node: ast.AST, code: CodeType, given: Mapping[str, str]) -> dict[str, str]:
    """Names of the function that hold what is made of one of `given` alone, up to the failing line."""
    known = dict(given)
    function = file.function_of(node)
    line = getattr(node, "lineno", 0)
    inside = ast.walk(function) if function is not None else ()
    assigned = [n for n in inside if isinstance(n, ast.Assign) and n.lineno < line]
    for statement in sorted(assigned, key=lambda n: n.lineno):
        read = _locals(statement.value, code)
        targets = [t.id for t in statement.targets if isinstance(t, ast.Name)]
        if read and read <= known.keys():
            known.update(dict.fromkeys(targets, known[min(read)]))
        else:
            for name in targets:
                known.pop(name, None)
    return known


def _operands(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.Call(func=ast.Attribute(value=receiver), args=args, keywords=keywords):
            return [receiver, *args, *(k.value for k in keywords)]
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(k.value for k in keywords)]
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _origin(file: SourceFile, node: ast.AST, code: CodeType, known: Mapping[str, str]) -> str | None:
    operands = _operands(node)
    parents = [node, *file.ancestors(node)]
    guard = next((p for p in parents if isinstance(p, ast.Raise | ast.Assert)), None)
    if guard is not None:
        tests = [guard.test] if isinstance(guard, ast.Assert) else []
        tests += [p.test for p in parents if isinstance(p, ast.If)][:1]
        operands = [n for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)]
    for operand in operands:
        read = _locals(operand, code)
        if read and read <= known.keys():
            return known[min(read)]
    return None


def _handed_on(frame: FrameType, node: ast.AST, known: Mapping[str, str]) -> list[tuple[object, str]]:
    """The values of `known` names that the failing call gives to the function that it calls."""
    named = [n.id for n in _operands(node) if isinstance(n, ast.Name) and n.id in known]
    return [(frame.f_locals.get(name), known[name]) for name in named]


def _received(frame: FrameType, handed: list[tuple[object, str]]) -> dict[str, str]:
    """The parameters that hold what was handed on; a value that two of them hold tells nothing."""
    code = frame.f_code
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found: dict[str, str] = {}
    for value, origin in handed:
        holding = [name for name in parameters if frame.f_locals.get(name) is value]
        if len(holding) == 1:
            found[holding[0]] = origin
    return found
