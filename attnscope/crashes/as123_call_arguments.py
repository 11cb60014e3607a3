"""AS123: something is called with arguments that it does not take.

An argument is missing, one too many, or has a name that the function does not know. Often a `forward` was
given another parameter and one of its callers was not.

It is bad because PyTorch's call machinery stands between the call and the message, which says `forward()` and
not whose.

Example:

    import torch
    from torch import nn

    class Head(nn.Module):
        def forward(self, x, mask):
            return x * mask

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = Head()

        def forward(self, x):
            return self.head(x)

Cure: give what the signature asks for, or give the parameter a default.

    - return self.head(x)
    + return self.head(x, x > 0)
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from types import FunctionType, MethodType
from typing import Any

from attnscope.crashes.cause import defined
from attnscope.crashes.frames import Function
from attnscope.crashes.scene import Scene
from attnscope.crashes.values import helper_body, is_module
from attnscope.diagnostic import Diagnostic, Label
from attnscope.schema import Span
from attnscope.source import parse

CODE = "AS123"
_MISSING = re.compile(r"([\w.]+)\(\) missing \d+ required (?:positional|keyword-only) arguments?: (.+)")
_UNEXPECTED = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '([^']+)'")
_COUNT = re.compile(r"([\w.]+)\(\) takes (?:from )?(\d+)(?: to (\d+))? positional arguments? but (\d+)")
_TWICE = re.compile(r"([\w.]+)\(\) got multiple values for argument '([^']+)'")
_TORCH = re.compile(r"(\w+)\(\): argument '(\w+)' \(position (\d+)\) must be (.+?), not (\w+)")
_OVERLOAD = re.compile(r"(\w+)\(\) received an invalid combination of arguments")


def diagnose(scene: Scene) -> Diagnostic | None:
    words, op = scene.words, scene.op
    if not issubclass(type(scene.error), TypeError):
        return None
    for pattern, judge in (
        (_MISSING, _missing),
        (_UNEXPECTED, _unexpected),
        (_COUNT, _count),
        (_TWICE, _twice),
    ):
        found = pattern.search(words)
        if found is not None:
            return _python(scene, found, judge)
    found = _TORCH.search(words)
    if found is not None:
        position = int(found[3])
        given = op.inputs[position - 1][0] if op is not None and 0 < position <= len(op.inputs) else None
        return scene.finding(
            CODE,
            f"`{found[1]}` takes `{found[4]}` as `{found[2]}`, and is given `{found[5]}`",
            label=f"argument {position}",
            labels=defined(scene, given) if given is not None else [],
            help=f"give `{found[4]}` as argument {position}",
        )
    found = _OVERLOAD.search(words)
    if found is None:
        return None
    got = re.search(r"got (\(.*?\))", words)
    notes = [scene.show(node, value) for node, value in op.tensors][:4] if op is not None else []
    return scene.finding(
        CODE,
        f"`{found[1]}` does not take these arguments",
        label=f"given {got[1]}" if got else "called here",
        notes=notes or [words],
        help=f"look at what `{found[1]}` takes: a name, an order or a type here is another one",
    )


def _python(scene: Scene, found: re.Match[str], judge: Any) -> Diagnostic:
    """A function of Python's that was called with other arguments than its signature has."""
    callee, body, span = _callee(scene, found[1])
    shown = f"({ast.unparse(body.args)})" if body is not None else ""
    message, cure = judge(scene, found, body)
    return scene.finding(
        CODE,
        f"{callee or f'`{found[1]}`'} {message}",
        label="called here",
        labels=[Label(span, f"takes `{shown}`")] if span is not None else [],
        notes=[f"the signature is `{found[1].rsplit('.', 1)[-1]}{shown}`"] if shown else [],
        help=cure,
    )


def _missing(scene: Scene, found: re.Match[str], body: Function | None) -> tuple[str, str]:
    names = found[2].replace("'", "`")
    known = scene.reader.body.locals if scene.reader is not None else {}
    there = [f"`{name}`" for name in re.findall(r"'([^']+)'", found[2]) if name in known]
    default = f"give {names}, or give it a default in the signature"
    return f"is called without {names}", f"give {', '.join(there)}" if there else default


def _unexpected(scene: Scene, found: re.Match[str], body: Function | None) -> tuple[str, str]:
    args = body.args if body is not None else None
    names = [one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)] if args is not None else []
    near = difflib.get_close_matches(found[2], names, 1, 0.5)
    cure = f"use its name `{near[0]}`" if near else f"leave out `{found[2]}`, or add it to the signature"
    return f"has no parameter `{found[2]}`", cure


def _twice(scene: Scene, found: re.Match[str], body: Function | None) -> tuple[str, str]:
    return f"is given `{found[2]}` twice", f"give `{found[2]}` once, by its place or by its name"


def _count(scene: Scene, found: re.Match[str], body: Function | None) -> tuple[str, str]:
    most, cure = found[3] or found[2], "give as many as the signature has (`self` counts as one)"
    first = [one.arg for one in body.args.args[:1]] if body is not None else ["self"]
    if isinstance(scene.node, ast.Call) and first != ["self"] and int(found[4]) == int(most) + 1:
        cure = "add `self` as the first parameter, if it is a method"
    return f"takes {most} arguments and is given {found[4]}", cure


def _callee(scene: Scene, name: str) -> tuple[str, Function | None, Span | None]:
    """(words for what was called, its `def`, the span of its first line)."""
    op = scene.op if isinstance(scene.node, ast.Call | ast.Expr) else None
    target: Any = op.callee if op is not None else None
    words = f"`{scene.text(op.words)}`" if op is not None and op.words is not None else ""
    short, function = name.rsplit(".", 1)[-1], target.__func__ if isinstance(target, MethodType) else target
    if is_module(target):
        function = inspect.getattr_static(type(target), short, None)
    elif isinstance(target, type):
        function = inspect.getattr_static(target, "__init__", None)
    elif not isinstance(function, FunctionType) and scene.shot is None and scene.cls is not None:
        function = inspect.getattr_static(scene.cls, short, None)
        words = f"`{scene.cls.__name__}`"
    body = helper_body(function) if isinstance(function, FunctionType) else None
    file = parse(function.__code__.co_filename) if body is not None else None
    if body is None or file is None:
        return words, None, None
    line = file.lines[body.lineno - 1]
    start = len(line) - len(line.lstrip()) + 1
    return words, body, Span(file.name, body.lineno, start, body.lineno, len(line.rstrip()) + 1)
