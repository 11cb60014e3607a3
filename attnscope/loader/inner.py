"""Modules as arguments of a constructor: which parameter takes one, which class fits, and who makes it.

`Encoder(layer, N)`, `EncoderDecoder(encoder, decoder, src_embed, tgt_embed, generator)`: how the class uses
what it is given tells what it needs, and a function of the same file may show how one is made.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import nn

from attnscope.loader.names import normal, role_of
from attnscope.loader.target import Target

_USUAL = re.compile(
    r"attn|attention|feed_?forward|proj$|^ffn?$|mlp|^fn$|^net$|module|sublayer|encoder|decoder|embed$|generator"
)
_NUMBER = re.compile(r"span|dim|size|len|width|ratio|type|mode|drop|mask|bias|scale|factor|prob")
_COPIERS = {"deepcopy", "clones", "get_clones", "_get_clones", "ModuleList", "Sequential"}
_PLAIN = (int, float, bool, str, "int", "float", "bool", "str")
_FORWARD = ("ff", "ffn", "mlp")
_WORDS = {"attn": "attention", "emb": "embed", **dict.fromkeys(_FORWARD, "feedforward")}


@dataclass
class Uses:
    """What a class does with one parameter: argument counts of its calls, attributes read of it."""

    calls: set[int] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    made: bool = False  # called while constructing: a class or a function that makes something
    copied: bool = False
    listed: bool = False


@dataclass(frozen=True)
class Inner:
    """A parameter that takes a module: classes that may fit, the likeliest first."""

    name: str
    candidates: tuple[Any, ...]
    as_class: bool = False
    listed: bool = False
    calls: frozenset[int] = frozenset()


def uses_of(target: Target, name: str) -> Uses:
    """How the class that the target is uses the constructor's parameter `name`."""
    uses = Uses()
    cls = _class_node(target.tree, target.name.rpartition(".")[2])
    init = _method(cls, "__init__") if cls is not None else None
    if cls is None or init is None:
        return uses
    kept = {name}
    for goal, value in _assigned(init):
        if _text(goal).startswith("self.") and _holds(value, name):
            uses.copied |= not isinstance(value, ast.Name)
            kept.add(_text(goal))
    for node in ast.walk(init):
        match node:
            case ast.Call(func=ast.Name(id=called)) if called == name:
                uses.made = True
    _read_uses(cls, kept, uses)
    return uses


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned to what, `a, b = c, d` pair by pair."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for goal in node.targets:
                if isinstance(goal, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(goal.elts, node.value.elts, strict=False)
                else:
                    yield goal, node.value


def _holds(value: ast.expr, name: str) -> bool:
    """An expression is the parameter itself, or copies of it, or a list of them."""
    match value:
        case ast.Name(id=said):
            return said == name
        case ast.Call(func=func, args=args) if _last(func) in _COPIERS:
            return any(_holds(arg, name) for arg in args)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return any(_holds(element, name) for element in elements)
        case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
            return _holds(element, name)
    return False


def _read_uses(cls: ast.ClassDef, kept: set[str], uses: Uses) -> None:
    loops = {
        node.target.id
        for node in ast.walk(cls)
        if isinstance(node, (ast.For, ast.comprehension))
        and isinstance(node.target, ast.Name)
        and _text(node.iter) in kept
    }
    uses.listed = bool(loops) and not uses.copied
    for node in ast.walk(cls):
        match node:
            case ast.Call(func=func, args=args) if _text(func).startswith("self.") and _text(func) in kept:
                uses.calls.add(len(args) + len(node.keywords))
            case ast.Call(func=ast.Name(id=called), args=args) if called in loops:
                uses.calls.add(len(args) + len(node.keywords))
            case ast.Attribute(value=value, attr=attr) if _text(value) in kept:
                uses.attributes.add(attr)


def takes_module(name: str, p: inspect.Parameter, uses: Uses, module: ModuleType) -> bool:
    """Whether a required parameter of a constructor is a module, or a class that makes one."""
    if p.annotation in _PLAIN or p.default is not p.empty:
        return False
    annotated = _annotated(p.annotation, module)
    if annotated is not None:
        return True
    if uses.calls or uses.copied or uses.made:
        return role_of(name) not in ("device", "dtype")
    if _NUMBER.search(name.lower()):
        return False
    return bool(_USUAL.search(name.lower())) and (role_of(name) is None or name.endswith("proj"))


def plan_module(name: str, p: inspect.Parameter, uses: Uses, target: Target) -> Inner:
    """The classes that a module-valued parameter may be made from."""
    annotated = _annotated(p.annotation, target.module)
    found = [annotated] if annotated not in (None, nn.Module, nn.ModuleList, nn.Sequential) else []
    found += [cls for cls in _ranked(name, uses, target) if cls not in found]
    listed = uses.listed or annotated is nn.ModuleList
    return Inner(name, tuple(found), uses.made and not uses.calls, listed, frozenset(uses.calls))


def _annotated(annotation: Any, module: ModuleType) -> Any:
    if isinstance(annotation, str):
        head, _, last = annotation.strip("\"' ").rpartition(".")
        annotation = vars(module).get(last) if not head else getattr(nn, last, None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, nn.Module) else None


def _ranked(name: str, uses: Uses, target: Target) -> list[type[nn.Module]]:
    """Classes of the same file that take what is passed and have what is read, by shared words."""
    own = target.factory
    wanted = _words(name) | (_words(target.name) if name.lower() in ("layer", "block", "layers") else set())
    found: list[tuple[int, int, type[nn.Module]]] = []
    for order, (said, cls) in enumerate(vars(target.module).items()):
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)) or cls is own:
            continue
        if cls.__module__.startswith("torch.") or not _takes(cls, uses.calls):
            continue
        node = _class_node(target.tree, cls.__name__)
        if node is not None and not uses.attributes - {"weight", "bias"} <= _sets(node, cls):
            continue
        shared = len(wanted & _words(said))
        if shared:
            found.append((-shared, order, cls))
    return [cls for _, _, cls in sorted(found, key=lambda item: item[:2])]


def _words(name: str) -> set[str]:
    words = {_WORDS.get(word, word) for word in normal(name).split("_") if len(word) > 1}
    joined = normal(name).replace("_", "")
    words |= {w for w in ("attention", "feedforward", "embed", "encoder", "decoder") if w in joined}
    return words - {"self", "multi", "head", "headed", "the", "module"}


def _takes(cls: type, calls: set[int]) -> bool:
    """Its `forward` takes as many arguments as each call gives."""
    try:
        found = list(inspect.signature(cls.forward).parameters.values())[1:]  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return True
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
        return True
    required = sum(p.default is p.empty for p in found)
    return all(required <= count <= len(found) for count in calls)


def _sets(node: ast.ClassDef, cls: type) -> set[str]:
    stored = {
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and _text(n.value) == "self"
    }
    return stored | set(dir(cls))


def makers_of(target: Target) -> Iterator[str]:
    """Functions, then classes, of the same file that construct the target's class."""
    bare = target.name.rpartition(".")[2]
    for kind in (ast.FunctionDef, ast.ClassDef):
        for node in target.tree.body:
            if isinstance(node, kind) and node.name != bare and node.name in vars(target.module):
                called = {_text(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
                if bare in called:
                    yield node.name


def _class_node(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name), None)


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _last(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _text(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{_text(value)}.{attr}"
        case ast.Subscript(value=value):
            return _text(value)
        case ast.Call(func=ast.Name(id="enumerate" | "reversed"), args=[first, *_]):
            return _text(first)
    return ""
