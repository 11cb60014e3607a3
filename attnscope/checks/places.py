"""Where things stand in the user's source, and how numbers are written in findings."""

from __future__ import annotations

import ast
import math
from typing import Any

from torch import nn

from attnscope.schema import Span
from attnscope.source import class_of


def bases(module: nn.Module) -> list[type]:
    """The module's class and those above it that are the user's own."""
    return [cls for cls in type(module).__mro__ if not cls.__module__.startswith(("torch.", "builtins"))]


def declared(module: nn.Module, name: str) -> Span | None:
    """Where `self.name = …` or `self.register_buffer("name", …)` stands in the class."""
    for cls in bases(module):
        found = class_of(cls)
        if found is None:
            continue
        file, node = found
        for inner in ast.walk(node):
            if _declares(inner, name):
                return file.node_span(inner)
    return None


def _declares(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for item in ast.walk(target):
                if isinstance(item, ast.Attribute) and item.attr == name and _is_self(item.value):
                    return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        first = node.args[0]
        registers = node.func.attr in ("register_buffer", "register_parameter", "add_module")
        return registers and isinstance(first, ast.Constant) and first.value == name
    return False


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "m", "module")


def reads_outside_constructor(module: nn.Module, name: str) -> bool:
    """Whether any method of the class but `__init__` reads `self.name`, or reads attributes by computed
    names."""
    for cls in bases(module):
        found = class_of(cls)
        if found is None:
            return True
        for method in found[1].body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name != "__init__":
                for inner in ast.walk(method):
                    if isinstance(inner, ast.Attribute) and inner.attr == name:
                        return True
                    if isinstance(inner, ast.Name) and inner.id in ("getattr", "vars"):
                        return True
    return False


def num(value: Any) -> str:
    """A number as short as it can be read: `0`, `0.27`, `5.66`, `3e-08`."""
    number = float(value)
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    if number == 0:
        return "0"
    if 0.001 <= abs(number) < 10000:
        text = f"{number:.3g}" if abs(number) < 1000 else f"{number:.0f}"
        return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
    return f"{number:.1e}".replace("e-0", "e-").replace("e+0", "e").replace(".0e", "e")


def counted(number: int, noun: str) -> str:
    """`1 pair`, `3 pairs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def listed(names: list[str], most: int = 4) -> str:
    """`a`, `b` and 3 more, each in backticks."""
    shown = [f"`{name}`" for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def formula(scale: float, sizes: dict[str, int]) -> str:
    """The formula that a scale is, in the letters of known sizes: `1/√D`; empty when it is none."""
    for text, value in formulas(sizes):
        if math.isclose(scale, value, rel_tol=4e-3):
            return text
    return ""


def formulas(sizes: dict[str, int]) -> list[tuple[str, float]]:
    """Usual scales and what they are, likeliest first."""
    made: list[tuple[str, float]] = [("1", 1.0)]
    for letter, size in sizes.items():
        if size > 1:
            made.append((f"1/√{letter}", size**-0.5))
    for letter, size in sizes.items():
        if size > 1:
            made += [(f"√{letter}", size**0.5), (f"1/{letter}", 1 / size), (letter, float(size))]
            made += [(f"{letter}^-0.25", size**-0.25), (f"1/{letter}²", size**-2.0)]
    return made
