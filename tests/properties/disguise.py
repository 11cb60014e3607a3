"""The same program in other words: what a verdict may not depend on is changed, what it computes is not.

Classes of modules are called `PartA`, `PartB` …; docstrings and comments are gone; attributes, buffers and
local variables have names that say nothing; every module has an unrelated method with a `temperature` and
unrelated attributes. Parameters of `forward` are renamed where the caller gives them. Sizes that a
constructor takes keep their names, and so does what is PyTorch's own.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

_UNRELATED = ast.parse("self.residual_scale = 1.0\nself.log_causal_stats = False").body
_METHOD = (
    "def sample(self, logits, temperature=1.0):\n    return logits.argmax(-1) if temperature else logits"
)
# Names of PyTorch, Python and their objects: what `.weight` or `.shape` is read from, no one can tell here.
_THEIRS = {  # type: ignore[var-annotated]
    name
    for thing in (
        nn.Module(), nn.Linear(1, 1), nn.Embedding(1, 1), nn.LayerNorm(1), nn.MultiheadAttention(1, 1),
        nn.Conv2d(1, 1, 1), nn.ModuleList(), nn.Parameter(), torch.Tensor, torch.finfo(torch.float), torch,
        nn, nn.functional, math, [], {}, "", (), 1, 1.0, slice(1),
    )
    for name in dir(thing)
}  # fmt: skip


@dataclass(frozen=True)
class Disguised:
    """A source text in other words, and what the old names of classes and attributes have become."""

    source: str
    classes: dict[str, str]
    parameters: dict[str, str]

    def called(self, name: str) -> str:
        return self.classes.get(name, name)


def disguise(source: str, given: frozenset[str] = frozenset()) -> Disguised:
    """`given` are the parameters of `forward` that the caller gives, which are renamed."""
    tree = ast.parse(source)
    modules = _modules(tree)
    classes = {node.name: f"Part{_letters(i)}" for i, node in enumerate(modules)}
    said = {one.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for one in node.keywords}
    parameters = {name: f"given_{i}" for i, name in enumerate(sorted(given - said))}
    attributes = {name: f"a{i}" for i, name in enumerate(sorted(_attributes(tree, modules)))}
    _strip(tree)
    for node in modules:
        for function in (one for one in node.body if isinstance(one, ast.FunctionDef)):
            _rename_inside(function, parameters if function.name == "forward" else {})
        _add_members(node)
    _Words(classes, attributes).visit(tree)
    return Disguised(ast.unparse(ast.fix_missing_locations(tree)), classes, parameters)


def _letters(number: int) -> str:
    first, last = divmod(number, 26)
    return (chr(64 + first) if first else "") + chr(65 + last)


def _modules(tree: ast.Module) -> list[ast.ClassDef]:
    """The classes that are modules, by what they inherit from."""
    known: set[str] = set()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
            theirs = [getattr(nn, base, None) for base in bases]
            if known & {*bases} or any(isinstance(b, type) and issubclass(b, nn.Module) for b in theirs):
                known.add(node.name)
                found.append(node)
    return found


def _attributes(tree: ast.Module, modules: list[ast.ClassDef]) -> set[str]:
    """Names that modules of this file set on themselves and that nothing else in the file has."""
    set_here, sizes = set(), set()
    for node in (one for cls in modules for one in ast.walk(cls)):
        if isinstance(node, ast.Assign):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                for i, one in enumerate(names):
                    if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self":
                        set_here.add(one.attr)
                        value = values[i] if len(values) == len(names) else node.value
                        if not _makes(value):
                            sizes.add(one.attr)
        elif (name := _registered(node)) is not None:
            set_here.add(str(name.value))
    others = {one.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for one in node.keywords}
    registered = {id(_registered(node)) for node in ast.walk(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            others |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            others |= {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            others |= {*node.value.split(".")} if id(node) not in registered else set()
    return {str(name) for name in set_here - sizes - others - _THEIRS}


def _makes(value: ast.expr) -> bool:
    """Whether an attribute is a layer, a parameter or a table: something that a call makes."""
    return any(isinstance(one, ast.Call) for one in ast.walk(value)) and not (
        isinstance(value, ast.Call) and ast.unparse(value.func) in ("int", "float", "max", "min", "dict")
    )


def _registered(node: ast.AST) -> ast.Constant | None:
    """The name in `register_buffer("…", …)` and its like."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        first = node.args[0]
        if node.func.attr in ("register_buffer", "register_parameter", "add_module"):
            return first if isinstance(first, ast.Constant) else None
    return None


def _strip(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]


def _add_members(node: ast.ClassDef) -> None:
    for function in (one for one in ast.walk(node) if isinstance(one, ast.FunctionDef)):
        for place, statement in enumerate(function.body):
            if "super(" in (text := ast.unparse(statement)) and text.endswith(".__init__()"):
                function.body[place + 1 : place + 1] = _UNRELATED
                break
    if not any(isinstance(one, ast.FunctionDef) and one.name == "sample" for one in node.body):
        node.body.extend(ast.parse(_METHOD).body)


def _rename_inside(function: ast.FunctionDef, parameters: dict[str, str]) -> None:
    """Other names for the local variables of a method, and for the parameters that are named."""
    every = list(ast.walk(function))
    taken = {one.arg for node in every if isinstance(node, ast.arguments) for one in _all(node)}
    stored = [n.id for n in every if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    new = {name: f"v{i}" for i, name in enumerate(dict.fromkeys(stored)) if name not in taken}
    own = {one.arg for one in _all(function.args)}
    new |= {name: word for name, word in parameters.items() if name in own}
    for node in every:
        if isinstance(node, ast.Name) and node.id in new and not hasattr(builtins, node.id):
            node.id = new[node.id]
    for one in _all(function.args):
        one.arg = new.get(one.arg, one.arg)


def _all(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (one for one in (arguments.vararg, arguments.kwarg) if one is not None)


class _Words(ast.NodeVisitor):
    def __init__(self, classes: dict[str, str], attributes: dict[str, str]) -> None:
        self.classes, self.attributes = classes, attributes

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        node.name = self.classes.get(node.name, node.name)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        node.id = self.classes.get(node.id, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        node.attr = self.attributes.get(node.attr, node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _registered(node)
        if name is not None:
            name.value = self.attributes.get(str(name.value), name.value)
        self.generic_visit(node)
