"""How a constructor's source uses its parameters: `nn.Linear(d, 3 * d)` says that `d` is a width."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnscope.loader.names import is_size, role_of
from attnscope.ops.catalog import FACTORIES

_FIRST: dict[str, tuple[str, ...]] = {
    "Linear": ("C", "C"),
    "LazyLinear": ("C",),
    "LayerNorm": ("C",),
    "RMSNorm": ("C",),
    "Dropout": ("zero",),
    "MultiheadAttention": ("C", "H"),
    "Conv1D": ("C", "C"),
    "Conv1d": ("C", "C"),
    "Conv2d": ("C", "C"),
    "Embedding": ("vocab", "C"),
    "GroupNorm": ("groups", "C"),
    "TransformerEncoderLayer": ("C", "H", "ffn"),
    "TransformerDecoderLayer": ("C", "H", "ffn"),
    "TransformerEncoder": ("none", "layers"),
}
_SQUARE = {"ones", "zeros", "empty", "full", "tril", "triu", "rand", "eye"}
_NO_SIZES = {None, "none", "onef", "fourf", "zero", "false"}


@dataclass(slots=True)
class Usage:
    """What the source tells of expressions such as `d`, `config.n_embd`, `cfg["heads"]` by their text."""

    roles: dict[str, str] = field(default_factory=dict)
    literals: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, set[str]] = field(default_factory=dict)
    optional: dict[str, set[str]] = field(default_factory=dict)
    guarded: dict[str, set[str]] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    nested: dict[str, set[str]] = field(default_factory=dict)
    pairs: set[str] = field(default_factory=set)


def _key(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            base = _key(value)
            return f"{base}.{attr}" if base else None
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
            base = _key(value)
            return f"{base}.{key}" if base else None
        case ast.Call(func=ast.Name(id="int" | "float"), args=[only]):
            return _key(only)
    return None


def _last(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def read_usage(tree: ast.AST, signatures: Mapping[str, list[str]] | None = None) -> Usage:
    """Roles, attributes and keys that the code under `tree` shows.

    `signatures` maps a class of the same file to its constructor's parameter names, so that
    `Head(n_embd, size)` tells what `size` is.
    """
    usage = Usage()
    signatures = signatures or {}
    names_of_assignments = {
        id(node.value): ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                _read_call(node, usage, signatures, names_of_assignments.get(id(node), ""))
            case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv(), right=right):
                _note(usage, left, "C", weak=True)
                _note(usage, right, "H", weak=True)
            case ast.If(test=test) | ast.IfExp(test=test):
                plain = test.operand if isinstance(test, ast.UnaryOp) else test
                _note(usage, plain, "false", weak=True)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.UnaryOp()):
                _note(usage, left, "D", weak=True)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                _read_compare(usage, left, op, right)
            case ast.Subscript(value=value, slice=ast.Constant(value=int())):
                key = _key(value)
                if key:
                    usage.pairs.add(key)
            case ast.Assign(targets=[ast.Tuple()], value=value):
                key = _key(value)
                if key:
                    usage.pairs.add(key)
        _read_access(usage, node)
    return usage


def _note(usage: Usage, node: ast.AST, role: str, weak: bool = False) -> None:
    key = _key(node)
    if key and (not weak or key not in usage.roles):
        usage.roles[key] = role


def _read_access(usage: Usage, node: ast.AST) -> None:
    match node:
        case ast.Attribute(value=value, attr=attr, ctx=ast.Load()):
            base = _key(value)
            if base:
                usage.attributes.setdefault(base, set()).add(attr)
                outer, _, last = base.rpartition(".")
                if outer:
                    usage.nested.setdefault(outer, set()).add(last)
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
            base = _key(value)
            if base:
                usage.keys.setdefault(base, set()).add(key)


def _read_compare(usage: Usage, left: ast.expr, op: ast.cmpop, right: ast.expr) -> None:
    key = _key(left)
    if not key:
        return
    if (
        isinstance(right, ast.Constant)
        and isinstance(right.value, str)
        and isinstance(op, (ast.Eq, ast.NotEq))
    ):
        usage.literals.setdefault(key, right.value)
    if (
        isinstance(op, (ast.In, ast.NotIn))
        and isinstance(right, (ast.List, ast.Tuple, ast.Set))
        and right.elts
    ):
        first = right.elts[0]
        if isinstance(first, ast.Constant):
            usage.literals[key] = first.value


def _read_call(node: ast.Call, usage: Usage, signatures: Mapping[str, list[str]], assigned: str) -> None:
    name = _last(node.func)
    if isinstance(node.func, ast.Attribute):
        key = _key(node.func)
        if key:
            usage.called.add(key)
    if name in ("getattr", "hasattr") and len(node.args) >= 2 and isinstance(node.args[1], ast.Constant):
        base = _key(node.args[0])
        if base and (name == "hasattr" or len(node.args) == 3):
            table = usage.guarded if name == "hasattr" else usage.optional
            table.setdefault(base, set()).add(str(node.args[1].value))
    if name == "get" and isinstance(node.func, ast.Attribute) and node.args:
        base = _key(node.func.value)
        if base and isinstance(node.args[0], ast.Constant):
            usage.optional.setdefault(base, set()).add(str(node.args[0].value))
    roles = _FIRST.get(name, ())
    if name == "Embedding" and "pos" in assigned.lower():
        roles = ("T", "C")
    if (
        name == "Linear"
        and any(w in assigned.lower() for w in ("head", "vocab", "logit"))
        and "lm" in assigned
    ):
        roles = ("C", "vocab")
    for arg, usual in zip(node.args, roles, strict=False):
        _note(usage, arg, usual, weak=usual != "T")
    if name in _SQUARE and len(node.args) >= 2:
        first, second = _key(node.args[0]), _key(node.args[1])
        if first and first == second:
            usage.roles[first] = "T"
    for arg in node.args if name in FACTORIES else ():
        key = _key(arg)
        if key and role_of(key.rpartition(".")[2]) in _NO_SIZES:  # whatever its name says, it is a size
            usage.roles[key] = "two"
    if "clone" in name and len(node.args) == 2:
        _note(usage, node.args[1], "layers")
    if name == "range" and len(node.args) == 1:
        _note(usage, node.args[0], "layers", weak=True)
    for arg, parameter in zip(node.args, signatures.get(name, ()), strict=False):
        role = role_of(parameter)
        if role:
            _note(usage, arg, role, weak=not is_size(role))
    for keyword in node.keywords:
        role = role_of(keyword.arg) if keyword.arg else None
        if role and _key(keyword.value):
            _note(usage, keyword.value, role, weak=True)


def constructor_signatures(tree: ast.Module) -> dict[str, list[str]]:
    """For each class of a file the parameter names of its `__init__`, `self` left out."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    found[node.name] = [a.arg for a in item.args.args[1:]]
    return found
