"""Which guessed value the failing operation reads, where one of its operands is made of that value alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import CodeType, FrameType

from attnscope.loader.probe import user_frames
from attnscope.source import SourceFile, node_at, parse

Known = Mapping[str, str]
"""What the source calls a value (`mask`, `self.pad`, `config.gate`), and the guess that it is made of."""


def reads_alone(error: BaseException | None, given: Mapping[CodeType, Known]) -> str | None:
    """The guess of which an operand of the failing operation is made, and of nothing else.

    `scores + mask` and `mask[:, None].view(b, 1, t, t)` read `mask`; a later step on sums of both does not.
    A `raise` or an `assert` reads what its condition reads. `given` tells for a function under which names it
    has guessed values.
    """
    handed: list[tuple[object, str]] = []
    found: str | None = None
    for frame, _, lasti in user_frames(error):
        start = {**given.get(frame.f_code, {}), **_received(frame, handed)}
        place = node_at(frame.f_code, lasti)
        found, handed = None, []
        if place is not None and start:
            known = _derived(*place, frame.f_code, start)
            found = _origin(*place, frame.f_code, known)
            handed = _handed_on(frame, place[1], known)
    return found


def kept_as_attributes(constructor: CodeType | None, given: Known) -> dict[str, str]:
    """`self.pad` where the constructor sets it to what is made of a guess alone."""
    file = parse(constructor.co_filename) if constructor is not None else None
    if file is None or constructor is None:
        return {}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef) and node.lineno == constructor.co_firstlineno:
            last = node.body[-1]
            known = _derived(file, last, constructor, given, last.end_lineno or last.lineno)
            return {name: origin for name, origin in known.items() if name.startswith("self.")}
    return {}


def _made_of(node: ast.AST, code: CodeType, known: Known) -> set[str] | None:
    """The guesses of which an expression is made; None where it reads any other local value too."""
    text = _chain(node)
    if text is not None:
        parts = text.split(".")
        for end in range(len(parts), 0, -1):
            if ".".join(parts[:end]) in known:
                return {known[".".join(parts[:end])]}
        return None if parts[0] in code.co_varnames else set()
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        inner = _made_of(child, code, known)
        if inner is None:
            return None
        found |= inner
    return found


def _chain(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            base = _chain(value)
            return f"{base}.{attr}" if base is not None else None
    return None


def _derived(
    file: SourceFile, node: ast.AST, code: CodeType, given: Known, before: int | None = None
) -> dict[str, str]:
    """`given`, and the names of the function that hold what is made of it alone, up to the failing line."""
    known = dict(given)
    function = file.function_of(node)
    line = before + 1 if before is not None else getattr(node, "lineno", 0)
    inside = ast.walk(function) if function is not None else ()
    assigned = [n for n in inside if isinstance(n, ast.Assign) and n.lineno < line]
    for statement in sorted(assigned, key=lambda n: n.lineno):
        pairs = [(target, statement.value) for target in statement.targets]
        for target, value in [p for pair in pairs for p in _unpacked(*pair)]:
            name, made = _chain(target), _made_of(value, code, known)
            if name is not None:
                known.pop(name, None)
                known.update({name: min(made)} if made else {})
    return known


def _unpacked(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """`a, b = c, d` as two assignments."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(inner, value) for inner in target.elts] if isinstance(target, ast.Tuple) else [(target, value)]


def _operands(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.Call(func=ast.Attribute(value=receiver), args=args, keywords=keywords):
            return [receiver, *args, *(k.value for k in keywords)]
        case ast.Call(func=function, args=args, keywords=keywords):
            return [function, *args, *(k.value for k in keywords)]
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _origin(file: SourceFile, node: ast.AST, code: CodeType, known: Known) -> str | None:
    operands = _operands(node)
    parents = [node, *file.ancestors(node)]
    guard = next((p for p in parents if isinstance(p, ast.Raise | ast.Assert)), None)
    if guard is not None:
        tests = [guard.test] if isinstance(guard, ast.Assert) else []
        tests += [p.test for p in parents if isinstance(p, ast.If)][:1]
        operands = [n for test in tests for n in ast.walk(test) if _chain(n) is not None]
    made = [_made_of(operand, code, known) for operand in operands]
    return next((min(origins) for origins in made if origins), None)


def _handed_on(frame: FrameType, node: ast.AST, known: Known) -> list[tuple[object, str]]:
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
