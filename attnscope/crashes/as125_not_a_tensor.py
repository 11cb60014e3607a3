"""AS125: None, a tuple or another thing stands where a tensor (or a layer) is needed.

`nn.MultiheadAttention` and many layers return a tuple; a function without `return` gives None; a mask that
defaults to None was not given; a layer is indexed, or something that is no layer is called.

It is bad because the message speaks of the type alone, and not of the line that made it.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            y = self.attn(x, x, x)
            return y.view(2, 6, 16)

Cure: unpack the tuple (`y, _ = …`), return the value, or give the argument.

    - y = self.attn(x, x, x)
    + y, _ = self.attn(x, x, x)
"""

from __future__ import annotations

import ast
import re
from types import FunctionType, MethodType
from typing import Any

import torch

from attnscope.crashes.scene import Scene
from attnscope.crashes.values import UNKNOWN, helper_body, is_module, is_tensor
from attnscope.diagnostic import Diagnostic, Label

CODE = "AS125"
_PATTERNS = (
    re.compile(r"'([\w.]+)' object has no attribute '(\w+)'"),
    re.compile(r"'([\w.]+)' object is not (subscriptable|callable|iterable)"),
    re.compile(r"unsupported operand type\(s\) for (\S+): '([\w.]+)' and '([\w.]+)'"),
    re.compile(r"must be (?:a )?(?:Tensor|tuple of Tensors|tuple of ints), not (\w+)"),
    re.compile(r"bad operand type for unary (\S+): '([\w.]+)'"),
    re.compile(r"cannot unpack non-iterable (\w+) object"),
    re.compile(r"expected Tensor as (?:first |element \d+ )?.*but got (\w+)"),
    re.compile(r"(?:indices must be integers or slices, not|object cannot be interpreted as an integer)()"),
)
_ODD = (
    "tuple",
    "list",
    "NoneType",
    "dict",
    "str",
    "int",
    "float",
    "bool",
    "function",
    "method",
    "builtin_function_or_method",
)


def diagnose(scene: Scene) -> Diagnostic | None:
    if not isinstance(scene.error, AttributeError | TypeError | RuntimeError) or scene.node is None:
        return None
    if not any(pattern.search(scene.words) for pattern in _PATTERNS):
        return None
    if (
        any(word in scene.words for word in ("float", "'str' and", "and 'str'"))
        and "attribute" not in scene.words
        and (
            scene.op is not None
            and scene.op.name in ("view", "reshape", "split", "chunk", "Linear", "expand", "repeat")
        )
    ):
        return None
    found = _odd(scene)
    if found is None:
        return None
    node, value = found
    kind = "None" if value is None else type(value).__name__
    text = scene.text(node, 50)
    words = {
        "None": "None",
        "int": "an integer",
        "float": "a number",
        "bool": "True or False",
        "type": "a type",
        "tuple": "a tuple",
        "list": "a list",
        "dict": "a dict",
        "str": "a string",
    }.get(kind, f"a `{kind}`")
    if isinstance(value, tuple | list) and value:
        words += f" of {len(value)}"
    use = _use(scene, node, value)
    labels, cure = _origin(scene, node, value)
    return scene.finding(
        CODE, f"`{text}` is {words}, {use}", label=f"`{text}` is {words}", labels=labels, help=cure
    )


def _odd(scene: Scene) -> tuple[ast.expr, Any] | None:
    """The operand that is no tensor (or no layer), with its raw value."""
    node = scene.node.value if isinstance(scene.node, ast.Expr) else scene.node
    parts: list[ast.expr] = []
    if isinstance(node, ast.Attribute):
        parts = [node.value]
    elif isinstance(node, ast.Call):
        called = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        if "not callable" in scene.words:
            parts = [node.func]
        elif "no attribute" in scene.words:
            parts = [*called, *node.args]
        else:
            parts = [*node.args, *(word.value for word in node.keywords), *called]
    elif isinstance(node, ast.Subscript):
        parts = [node.value]
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.AugAssign):
        parts = [node.target, node.value]
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    elif isinstance(node, ast.Tuple | ast.List) and isinstance(
        getattr(scene.shot, "statement", None), ast.Assign
    ):
        statement = scene.shot.statement if scene.shot is not None else None
        parts = [statement.value] if isinstance(statement, ast.Assign) else []
    elif isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.expr):
        parts = [node]
    wanted = [match for pattern in _PATTERNS if (match := pattern.search(scene.words))]
    names = {group for match in wanted for group in match.groups() if group}
    known = [(part, scene.value(part)) for part in parts if not isinstance(part, ast.Starred)]
    for part, value in known:
        if value is UNKNOWN or is_tensor(value):
            continue
        layer = is_module(value) and type(value).__module__.startswith("torch.nn.")
        if "no attribute" in scene.words and not (
            type(value).__name__ in _ODD or (layer and hasattr(torch.Tensor, _attribute(scene)))
        ):
            continue  # an object of the user's lacks an attribute: that is another rule's
        if type(value).__name__ in names:
            return part, value
    if "not callable" in scene.words and known and known[0][1] is not UNKNOWN:
        return known[0]
    operands = _PATTERNS[2].search(scene.words)
    if operands is not None and len(known) == 2 and operands[2] != operands[3]:
        # The value of a call cannot be read again; of which type it was, the message says.
        for (part, value), kind in zip(known, operands.groups()[1:], strict=True):
            if value is UNKNOWN and isinstance(part, ast.Call) and kind in ("tuple", "list", "NoneType"):
                return part, {"tuple": (), "list": [], "NoneType": None}[kind]
    return None


def _attribute(scene: Scene) -> str:
    found = _PATTERNS[0].search(scene.words)
    return found[2] if found else ""


def _use(scene: Scene, node: ast.AST, value: Any) -> str:
    if "not callable" in scene.words:
        return "and is called"
    if "not subscriptable" in scene.words:
        return "and is indexed"
    if "not iterable" in scene.words or "unpack" in scene.words:
        return "and is unpacked"
    if type(value) is dict and "no attribute" in scene.words:
        return "and has no attributes of its keys' names"
    return "where a tensor is needed" if not is_module(value) else "where its output is needed"


def _origin(scene: Scene, node: ast.expr, value: Any) -> tuple[list[Label], str]:
    text = scene.text(node, 50)
    labels: list[Label] = []
    cure = f"make `{text}` a tensor before it is used"
    if type(value) in (int, float, bool):
        cure = f"`{text}` is {value}: give the tensor that is meant in its place"
    if type(value) is dict and "no attribute" in scene.words:
        key = _attribute(scene)
        cure = f'read the key: `{text}["{key}"]`'
        if key not in value:
            cure = (
                f"it has no key `{key}` either: its keys are {', '.join(f'`{k}`' for k in list(value)[:6])}"
            )
    if isinstance(value, type):
        cure = f"give the tensor that is meant in place of `{text}`"
    links = scene.history(node)
    for link in links[:4]:
        if link.kind == "def":
            labels.append(scene.label(link.node, f"`{link.name}` is made here"))
        elif link.kind == "argument":
            function = scene.reader.body.function if scene.reader is not None else None
            for argument in (*function.args.args, *function.args.kwonlyargs) if function is not None else ():
                if argument.arg == link.name:
                    labels.append(scene.label(argument, f"`{link.name}` is a parameter"))
            if value is None:
                cure = f"give `{link.name}`, or ask `if {link.name} is not None` first"
        elif link.kind == "attribute":
            setting = scene.setting(link.name)
            if setting is not None:
                labels.append(scene.label(setting.target, f"`{link.name}` is set here"))
            if value is None:
                cure = f"set `{scene.text(link.node)}` before it is read, or ask whether it is None"
    call = _call(scene, node)
    if isinstance(value, tuple | list):
        cure = f"take one element of it, `{text}[0]`"
        if call is not None:
            op = scene.operation_of(call, scene.env)
            if op is not None and is_module(op.callee) and type(op.callee).__name__ == "MultiheadAttention":
                cure = f"`nn.MultiheadAttention` returns two values: `{text}, _ = {scene.text(call, 50)}`"
            elif isinstance(node, ast.Name):
                cure = f"unpack it, `{text}, _ = …`, or take `{text}[0]`" if len(value) == 2 else cure
        elif isinstance(node, ast.Name) and any(link.kind == "def" for link in links):
            cure = (
                f"`{text}` is a {type(value).__name__} of {len(value)}: "
                f"unpack it, or take one element, `{text}[0]`"
            )
    elif value is None and call is not None:
        op = scene.operation_of(call, scene.env)
        callee = op.callee if op is not None else None
        called: Any = callee.__func__ if type(callee) is MethodType else callee
        body = helper_body(called) if type(called) is FunctionType else None
        if body is not None and scene.file is not None and called.__code__.co_filename == scene.file.name:
            labels.append(scene.label(body, f"`{body.name}` returns nothing"))
        cure = f"return the value from `{scene.text(call.func)}`"
    if is_module(value):
        cure = f"call it: `{text}(…)`" if "callable" not in scene.words else cure
        if "subscriptable" in scene.words or "iterable" in scene.words:
            cure = f"`{text}` is a layer: call it with round brackets, or make it an `nn.ModuleList`"
    if "not callable" in scene.words and not is_module(value):
        cure = (
            f"`{text}` is no function and no layer: leave out "
            f"the call, or use another name for one of the two"
        )
    if type(value).__name__ in ("function", "method", "builtin_function_or_method"):
        cure = f"call it: `{text}()`"
    return labels, cure


def _call(scene: Scene, node: ast.AST) -> ast.Call | None:
    """The call that gave the value: in place, or at the name's definition."""
    if isinstance(node, ast.Call):
        return node
    if isinstance(node, ast.Name):
        found = scene.env.definition(node.id)
        value = getattr(found[0], "value", None) if found is not None else None
        return value if isinstance(value, ast.Call) else None
    return None
