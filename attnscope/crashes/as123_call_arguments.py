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
    if not issubclass(type(scene.error), TypeError):
        return None
    words = scene.words
    missing, unexpected, count, twice = (p.search(words) for p in (_MISSING, _UNEXPECTED, _COUNT, _TWICE))
    found = missing or unexpected or count or twice
    if found:
        return _python(scene, found[1], missing, unexpected, count, twice)
    torch_words = _TORCH.search(words)
    if torch_words:
        return scene.finding(
            CODE,
            f"`{torch_words[1]}` takes `{torch_words[4]}` as "
            f"`{torch_words[2]}`, and is given `{torch_words[5]}`",
            label=f"argument {torch_words[3]}",
            labels=_argument_label(scene, int(torch_words[3])),
            help=f"give `{torch_words[4]}` as argument {torch_words[3]}",
        )
    overload = _OVERLOAD.search(words)
    if overload:
        got = re.search(r"got (\(.*?\))", words)
        return scene.finding(
            CODE,
            f"`{overload[1]}` does not take these arguments",
            label=f"given {got[1]}" if got else "called here",
            notes=_given(scene),
            help=f"look at what `{overload[1]}` takes: a name, an order or a type here is another one",
        )
    return None


def _python(scene: Scene, name: str, missing: Any, unexpected: Any, count: Any, twice: Any) -> Diagnostic:
    callee, body, span = _callee(scene, name)
    short = callee or f"`{name}`"
    shown = _signature(body)
    labels = []
    if span is not None:
        labels.append(Label(span, f"takes `{shown}`" if shown else "the signature"))
    notes = [f"the signature is `{name.rsplit('.', 1)[-1]}{shown}`"] if shown else []
    if missing:
        names = missing[2].replace("'", "`")
        message = f"{short} is called without {names}"
        cure = f"give {names}, or give it a default in the signature"
        candidates = _locals_named(scene, re.findall(r"'([^']+)'", missing[2]))
        if candidates:
            cure = f"give {', '.join(f'`{c}`' for c in candidates)}"
    elif unexpected:
        message = f"{short} has no parameter `{unexpected[2]}`"
        near = difflib.get_close_matches(unexpected[2], _parameters(body), 1, 0.5)
        cure = (
            f"use its name `{near[0]}`"
            if near
            else f"leave out `{unexpected[2]}`, or add it to the signature"
        )
    elif twice:
        message = f"{short} is given `{twice[2]}` twice"
        cure = f"give `{twice[2]}` once, by its place or by its name"
    else:
        most = count[3] or count[2]
        message = f"{short} takes {most} arguments and is given {count[4]}"
        cure = "give as many as the signature has (`self` counts as one)"
        if (
            body is not None
            and not any(a.arg == "self" for a in body.args.args[:1])
            and isinstance(scene.node, ast.Call)
        ):
            cure = (
                "add `self` as the first parameter, if it is a method"
                if int(count[4]) == int(most) + 1
                else cure
            )
    return scene.finding(CODE, message, label="called here", labels=labels, notes=notes, help=cure)


def _callee(scene: Scene, name: str) -> tuple[str, Any, Span | None]:
    """(words for what was called, its `def`, the span of its first line)."""
    op = scene.op if isinstance(scene.node, ast.Call | ast.Expr) else None
    target: Any = op.callee if op is not None else None
    words = f"`{scene.text(op.node.func)}`" if op is not None and isinstance(op.node, ast.Call) else ""
    function: Any = None
    if is_module(target):
        function = inspect.getattr_static(type(target), name.rsplit(".", 1)[-1], None)
    elif isinstance(target, type):
        function = inspect.getattr_static(target, "__init__", None)
        if not isinstance(function, FunctionType):
            return words, None, None
    elif isinstance(target, MethodType):
        function = target.__func__
    elif isinstance(target, FunctionType):
        function = target
    elif scene.shot is None and scene.cls is not None:
        wanted = name.rsplit(".", 1)[-1]
        function = inspect.getattr_static(scene.cls, wanted, None)
        words = f"`{scene.cls.__name__}`"
    if not isinstance(function, FunctionType):
        return words, None, None
    body = helper_body(function)
    file = parse(function.__code__.co_filename)
    if body is None or file is None:
        return words, None, None
    line = file.lines[body.lineno - 1]
    start = len(line) - len(line.lstrip()) + 1
    return words, body, Span(file.name, body.lineno, start, body.lineno, len(line.rstrip()) + 1)


def _signature(body: Any) -> str:
    return f"({ast.unparse(body.args)})" if body is not None else ""


def _parameters(body: Any) -> list[str]:
    if body is None:
        return []
    return [one.arg for one in (*body.args.posonlyargs, *body.args.args, *body.args.kwonlyargs)]


def _locals_named(scene: Scene, names: list[str]) -> list[str]:
    known = scene.reader.body.locals if scene.reader is not None else {}
    return [name for name in names if name in known]


def _argument_label(scene: Scene, position: int) -> list[Label]:
    from attnscope.crashes.cause import defined

    op = scene.op
    if op is None or not 0 < position <= len(op.inputs):
        return []
    return defined(scene, op.inputs[position - 1][0])


def _given(scene: Scene) -> list[str]:
    op = scene.op
    if op is None:
        return [scene.words]
    return [scene.show(node, value) for node, value in op.tensors][:4] or [scene.words]
