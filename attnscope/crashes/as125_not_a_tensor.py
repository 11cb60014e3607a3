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
from torch import nn

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
_FUNCTIONS = ("function", "method", "builtin_function_or_method")
_ODD = ("tuple", "list", "NoneType", "dict", "str", "int", "float", "bool", *_FUNCTIONS)
_WORDS = {
    "NoneType": "None",
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "type": "a type",
    "tuple": "a tuple",
    "list": "a list",
    "dict": "a dict",
    "str": "a string",
}
_SIZED = ("view", "reshape", "split", "chunk", "Linear", "expand", "repeat")


def diagnose(scene: Scene) -> Diagnostic | None:
    words, op = scene.words, scene.op
    if not isinstance(scene.error, AttributeError | TypeError | RuntimeError) or scene.node is None:
        return None
    if not any(pattern.search(words) for pattern in _PATTERNS):
        return None
    number = any(word in words for word in ("float", "'str' and", "and 'str'")) and "attribute" not in words
    found = None if number and op is not None and op.name in _SIZED else _odd(scene)
    if found is None:
        return None
    node, value = found
    text, kind = scene.text(node, 50), type(value).__name__
    said = _WORDS.get(kind, f"a `{kind}`")
    if isinstance(value, tuple | list) and value:
        said += f" of {len(value)}"
    labels, links = _made(scene, node, value)
    return scene.finding(
        CODE,
        f"`{text}` is {said}, {_use(scene, value)}",
        label=f"`{text}` is {said}",
        labels=labels,
        help=_cure(scene, node, value, text, links),
    )


def _parts(scene: Scene) -> list[ast.expr]:
    """The expressions at the fault that may be what is no tensor."""
    node = scene.node.value if isinstance(scene.node, ast.Expr) else scene.node
    statement = scene.shot.statement if scene.shot is not None else None
    if isinstance(node, ast.Call):
        called = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        if "not callable" in scene.words:
            return [node.func]
        if "no attribute" in scene.words:
            return [*called, *node.args]
        return [*node.args, *(word.value for word in node.keywords), *called]
    if isinstance(node, ast.Attribute | ast.Subscript):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Tuple | ast.List) and isinstance(statement, ast.Assign):
        return [statement.value]
    return [node] if isinstance(node, ast.expr) else []


def _odd(scene: Scene) -> tuple[ast.expr, Any] | None:
    """The operand that is no tensor (or no layer), with its raw value."""
    words = scene.words
    names = {group for one in _PATTERNS if (match := one.search(words)) for group in match.groups() if group}
    known = [(part, scene.value(part)) for part in _parts(scene) if not isinstance(part, ast.Starred)]
    for part, value in known:
        kind = type(value)
        layer = (
            is_module(value)
            and kind.__module__.startswith("torch.nn.")
            and hasattr(torch.Tensor, _key(scene))
        )
        # An object of the user's that lacks an attribute is another rule's.
        ours = "no attribute" not in words or kind.__name__ in _ODD or layer
        if value is not UNKNOWN and not is_tensor(value) and ours and kind.__name__ in names:
            return part, value
    if "not callable" in words and known and known[0][1] is not UNKNOWN:
        return known[0]
    operands = _PATTERNS[2].search(words)
    if operands is not None and len(known) == 2 and operands[2] != operands[3]:
        # The value of a call cannot be read again; of which type it was, the message says.
        empty: dict[str, Any] = {"tuple": (), "list": [], "NoneType": None}
        for (part, value), name in zip(known, operands.groups()[1:], strict=True):
            if value is UNKNOWN and isinstance(part, ast.Call) and name in empty:
                return part, empty[name]
    return None


def _key(scene: Scene) -> str:
    """The attribute that the message speaks of."""
    found = _PATTERNS[0].search(scene.words)
    return found[2] if found else ""


def _use(scene: Scene, value: Any) -> str:
    if "not callable" in scene.words:
        return "and is called"
    if "not subscriptable" in scene.words:
        return "and is indexed"
    if "not iterable" in scene.words or "unpack" in scene.words:
        return "and is unpacked"
    if type(value) is dict and "no attribute" in scene.words:
        return "and has no attributes of its keys' names"
    return "where its output is needed" if is_module(value) else "where a tensor is needed"


def _made(scene: Scene, node: ast.expr, value: Any) -> tuple[list[Label], dict[str, str]]:
    """Labels for what the value is and who made it; the kinds of its history, each with a name."""
    labels, kinds = list[Label](), dict[str, str]()
    arguments = scene.function.args if scene.function is not None else None
    for link in scene.history(node)[:4]:
        kinds.setdefault(link.kind, scene.text(link.node) if link.kind == "attribute" else link.name)
        if link.kind == "def":
            labels.append(scene.label(link.node, f"`{link.name}` is made here"))
        elif link.kind == "argument" and arguments is not None:
            parameters = [one for one in (*arguments.args, *arguments.kwonlyargs) if one.arg == link.name]
            labels += [scene.label(one, f"`{link.name}` is a parameter") for one in parameters]
        elif link.kind == "attribute":
            labels += scene.set_at(link.node, f"`{link.name}` is set here")
    call = _call(scene, node) if value is None else None
    callee = scene.operation_of(call, scene.env) if call is not None else None
    called: Any = callee.callee if callee is not None else None
    function = called.__func__ if type(called) is MethodType else called
    body = helper_body(function) if type(function) is FunctionType else None
    if body is not None and scene.file is not None and function.__code__.co_filename == scene.file.name:
        labels.append(scene.label(body, f"`{body.name}` returns nothing"))
    return labels, kinds


def _cure(scene: Scene, node: ast.expr, value: Any, text: str, kinds: dict[str, str]) -> str:
    words, call = scene.words, _call(scene, node)
    if type(value).__name__ in _FUNCTIONS:
        return f"call it: `{text}()`"
    if is_module(value):
        if "subscriptable" in words or "iterable" in words:
            return f"`{text}` is a layer: call it with round brackets, or make it an `nn.ModuleList`"
        return (
            f"call it: `{text}(…)`"
            if "callable" not in words
            else f"make `{text}` a tensor before it is used"
        )
    if "not callable" in words:
        what = f"`{text}` is no function and no layer"
        return f"{what}: leave out the call, or use another name for one of the two"
    if isinstance(value, tuple | list):
        return _unpack(scene, node, value, text, call, "def" in kinds)
    if value is None:
        if call is not None:
            return f"return the value from `{scene.text(call.func)}`"
        if "attribute" in kinds:
            return f"set `{kinds['attribute']}` before it is read, or ask whether it is None"
        if "argument" in kinds:
            return f"give `{kinds['argument']}`, or ask `if {kinds['argument']} is not None` first"
    if type(value) is dict and "no attribute" in words:
        key, keys = _key(scene), ", ".join(f"`{key}`" for key in list(value)[:6])
        if key in value:
            return f'read the key: `{text}["{key}"]`'
        return f"it has no key `{key}` either: its keys are {keys}"
    if isinstance(value, type):
        return f"give the tensor that is meant in place of `{text}`"
    if type(value) in (int, float, bool):
        return f"`{text}` is {value}: give the tensor that is meant in its place"
    return f"make `{text}` a tensor before it is used"


def _unpack(scene: Scene, node: ast.expr, value: Any, text: str, call: ast.Call | None, named: bool) -> str:
    """What to do with a tuple or a list."""
    op = scene.operation_of(call, scene.env) if call is not None else None
    if op is not None and isinstance(op.callee, nn.MultiheadAttention):
        return f"`nn.MultiheadAttention` returns two values: `{text}, _ = {scene.text(call, 50)}`"
    if call is not None and isinstance(node, ast.Name) and len(value) == 2:
        return f"unpack it, `{text}, _ = …`, or take `{text}[0]`"
    if call is None and isinstance(node, ast.Name) and named:
        kind = f"a {type(value).__name__} of {len(value)}"
        return f"`{text}` is {kind}: unpack it, or take one element, `{text}[0]`"
    return f"take one element of it, `{text}[0]`"


def _call(scene: Scene, node: ast.AST) -> ast.Call | None:
    """The call that gave the value: in place, or at the name's definition."""
    found = scene.env.definition(node.id) if isinstance(node, ast.Name) else None
    value = getattr(found[0], "value", None) if found is not None else node
    return value if isinstance(value, ast.Call) else None
