"""Everything that the rules look at: the user's frame, the operation that failed, its operands, its class."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attnscope.crashes.crash import Crash
from attnscope.crashes.frames import Function, Shot, chain, user_shots
from attnscope.crashes.history import Link, history, operation
from attnscope.crashes.names import Env, FrameReader
from attnscope.crashes.reader import Reader
from attnscope.crashes.syntax import Setting, guards, settings
from attnscope.crashes.values import UNKNOWN, is_module, is_tensor, read
from attnscope.diagnostic import Diagnostic, Label
from attnscope.schema import Span, Step
from attnscope.source import SourceFile, class_file, class_of, parse, position_of


@dataclass(frozen=True, eq=False)
class Op:
    """The operation that raised: its canonical name, its operands in order, its keywords, what was called."""

    name: str
    node: ast.AST
    inputs: tuple[tuple[ast.expr, Any], ...]
    keywords: dict[str, tuple[ast.expr, Any]]
    callee: Any

    @property
    def tensors(self) -> tuple[tuple[ast.expr, Any], ...]:
        given = (*self.inputs, *self.keywords.values())
        return tuple((node, value) for node, value in given if is_tensor(value))

    @property
    def given(self) -> tuple[ast.expr, Any] | None:
        """What a layer is called with: its first argument."""
        return self.inputs[0] if self.inputs else next(iter(self.keywords.values()), None)

    @property
    def words(self) -> ast.expr | None:
        """The expression that is called: `self.proj`."""
        return self.node.func if isinstance(self.node, ast.Call) else None

    def asked(self) -> tuple[ast.expr, Any, list[ast.expr], list[Any]] | None:
        """(tensor's node, its twin, the size expressions, their values) of a `view` or an `expand`."""
        if not self.inputs or not is_tensor(self.inputs[0][1]):
            return None
        node, tensor = self.inputs[0]
        rest = self.inputs[1:] or tuple(self.keywords[key] for key in ("shape",) if key in self.keywords)
        flat: list[tuple[ast.expr, Any]] = []
        for one, value in rest:  # `x.view(*x.shape[:2], H, D)`, `x.view((B, T, C))`
            parts = one.elts if isinstance(one, ast.Tuple | ast.List) else []
            if isinstance(value, tuple | list):
                same = len(parts) == len(value)
                flat += [(parts[i] if same else one, item) for i, item in enumerate(value)]
            else:
                flat.append((one, value))
        return node, tensor, [one for one, _ in flat], [value for _, value in flat]

    def argument(self, index: int, name: str) -> tuple[ast.expr, Any] | None:
        """The operand at a place or under a name."""
        if name in self.keywords:
            return self.keywords[name]
        return self.inputs[index] if index < len(self.inputs) else None


def said(error: BaseException) -> str:
    """The exception's own words on one line; a hostile `__str__` counts as none."""
    try:
        text = BaseException.__str__(error) if type(error).__str__ is BaseException.__str__ else str(error)
    except BaseException:
        return ""
    if type(error) is KeyError and error.args:
        try:
            text = repr(error.args[0]) if type(error.args[0]) in (str, int) else ""
        except BaseException:
            text = ""
    return printable(" ".join(str(text).split()))[:400]


def printable(text: str) -> str:
    """The text with every character that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def sizes(shape: Any) -> str:
    return "[" + ", ".join(str(int(n)) for n in shape) + "]"


def dtype_name(value: Any) -> str:
    return str(getattr(value, "dtype", value)).removeprefix("torch.")


class Scene:
    """One crash, looked at. All parts are worked out when they are first asked for."""

    def __init__(self, crash: Crash) -> None:
        self.crash = crash
        self.error = crash.error
        self.words = said(crash.error)
        self.read = Reader(crash.steps)

    # -- where ------------------------------------------------------------------------------------

    @cached_property
    def cls(self) -> type | None:
        return self.crash.cls or (type(self.crash.module) if self.crash.module is not None else None)

    @cached_property
    def home(self) -> str | None:
        """The file of the class that was run."""
        return class_file(self.cls) if self.cls is not None else None

    @cached_property
    def shots(self) -> tuple[Shot, ...]:
        return user_shots(self.error, self.home)

    @cached_property
    def shot(self) -> Shot | None:
        return self.shots[-1] if self.shots else None

    @cached_property
    def file(self) -> SourceFile | None:
        if self.shot is not None and self.shot.source is not None:
            return self.shot.source
        return parse(self.home) if self.home else None

    @cached_property
    def node(self) -> ast.AST | None:
        return self.shot.node if self.shot is not None else None

    @cached_property
    def reader(self) -> FrameReader | None:
        if self.shot is None:
            return None
        outer = self.shots[-2] if len(self.shots) > 1 else None
        return FrameReader(self.shot, outer, self.read.assigned)

    @cached_property
    def env(self) -> Env:
        return self.reader.env() if self.reader is not None else Env()

    @cached_property
    def owner(self) -> Any:
        """The module in whose code the fault stands: `self` of the frame, else the module that was run."""
        if self.reader is not None:
            for shot in (self.shot, self.reader.body):
                if shot is None:
                    continue
                code = shot.frame.f_code
                names = code.co_varnames[:1] if code.co_argcount else ()
                for name in (*names, "self"):
                    value = shot.locals.get(name)
                    if is_module(value):
                        return value
        return self.crash.module

    @cached_property
    def klass(self) -> ast.ClassDef | None:
        """The class in whose source the fault stands."""
        if self.reader is not None and self.reader.body.klass is not None:
            return self.reader.body.klass
        if self.cls is not None:
            found = class_of(self.cls)
            return found[1] if found is not None else None
        return None

    @cached_property
    def settings(self) -> list[Setting]:
        return settings(self.klass) if self.klass is not None else []

    def setting(self, name: str, klass: ast.ClassDef | None = None) -> Setting | None:
        """Where an attribute first gets its value."""
        known = self.settings if klass is None else settings(klass)
        return next((one for one in known if one.name == name), None)

    @staticmethod
    def below(module: Any) -> list[Any]:
        """A module and all that are registered below it."""
        found, stack = dict[int, Any](), [module] if is_module(module) else []
        while stack:
            one = stack.pop()
            if id(one) not in found:
                found[id(one)] = one
                stack += [child for child in (read(one, "_modules") or {}).values() if is_module(child)]
        return list(found.values())

    def set_at(self, node: ast.AST | None, text: str) -> list[Label]:
        """Where the attribute that an expression reads gets its value; `{}` in the text: how it is kept."""
        setting = self.setting(node.attr) if isinstance(node, ast.Attribute) else None
        if setting is None:
            return []
        return [self.label(setting.target, text.replace("{}", "registered" if setting.registered else "set"))]

    @cached_property
    def function(self) -> Function | None:
        """The function in which the fault stands."""
        return self.reader.body.function if self.reader is not None else None

    @cached_property
    def arguments(self) -> list[tuple[str, Any]]:
        """The positional parameters of that function, as they are at the fault."""
        if self.reader is None:
            return []
        code, known = self.reader.body.frame.f_code, self.reader.body.locals
        return [(name, known.get(name)) for name in code.co_varnames[: code.co_argcount]]

    def unread_names(self) -> list[ast.Name]:
        """Names that the function sets and never reads."""
        nodes = ast.walk(self.function) if self.function is not None else ()
        names = [node for node in nodes if isinstance(node, ast.Name)]
        loaded = {node.id for node in names if isinstance(node.ctx, ast.Load)} | {"_"}
        stored = [node for node in names if isinstance(node.ctx, ast.Store)]
        return [node for node in stored if node.id not in loaded and node.id.strip("_")]

    @cached_property
    def condition(self) -> ast.expr | None:
        """What an `assert` asks at the fault, or the `if` around a `raise`."""
        statement = self.shot.statement if self.shot is not None else None
        if isinstance(statement, ast.Assert):
            return statement.test
        if not isinstance(statement, ast.Raise) or self.shot is None or self.shot.source is None:
            return None
        around = guards(self.shot.source, statement)
        return around[0].test if around and isinstance(around[0], ast.If) else None

    def views(self) -> list[Scene]:
        """This crash as seen from each class of the module that was run: for faults no frame leads to."""
        found: dict[type, Scene] = {}
        for module in self.below(self.crash.module):
            kind = type(module)
            place = None if kind in found or kind.__module__.startswith("torch.") else class_of(kind)
            if place is not None:
                view = found[kind] = Scene(self.crash)
                file, node = place
                view.__dict__.update(klass=node, file=file, shot=None, settings=settings(node))
        return list(found.values())

    # -- spans and words ---------------------------------------------------------------------------

    @cached_property
    def span(self) -> Span | None:
        if self.shot is not None:
            return self.shot.span
        if self.klass is not None and self.file is not None:
            return self.head(self.klass)
        return None

    def head(self, node: ast.AST) -> Span:
        """The span of a node; of a compound statement or a class, its first line alone."""
        assert self.file is not None
        position = position_of(node)
        if position is None:
            return Span(self.file.name, 1, 1, 1, 1)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.If | ast.For | ast.While | ast.With):
            line = self.file.lines[node.lineno - 1]
            stripped = line.strip()
            start = len(line) - len(line.lstrip()) + 1
            return Span(self.file.name, node.lineno, start, node.lineno, start + len(stripped))
        return self.file.node_span(node)

    def label(self, node: ast.AST, text: str) -> Label:
        return Label(self.head(node), text)

    def text(self, node: ast.AST | None, limit: int = 80) -> str:
        """The source text of a node on one line."""
        if node is None:
            return "…"
        file = self.file
        segment = None
        if file is not None and position_of(node) is not None:
            segment = ast.get_source_segment("\n".join(file.lines), node)
        if segment is None:
            try:
                segment = ast.unparse(node)
            except Exception:
                return "…"
        segment = printable(" ".join(segment.split()))
        return segment if len(segment) <= limit else segment[: limit - 1] + "…"

    def quote(self, node: ast.AST | None) -> str:
        return f"`{self.text(node)}`"

    # -- values --------------------------------------------------------------------------------------

    def value(self, node: ast.AST | None, env: Env | None = None) -> Any:
        return self.read(node, env or self.env)

    def show(self, node: ast.AST | None, value: Any) -> str:
        """`` `att` [B 1, H 2, T 6, S 6]``: the source's words, and the shape with the axes that are known."""
        return f"{self.quote(node)} {self.shape(value, node)}" if is_tensor(value) else self.quote(node)

    def shape(self, value: Any, node: ast.AST | str | None = None) -> str:
        """`[B 1, H 2, T 6, S 6]`: sizes, with the axis names that a step gave to `node` (or a variable)."""
        shape = tuple(int(n) for n in value.shape)
        name = node if isinstance(node, str) or node is None else self.text(node)
        axes = self.axes(shape, name)
        if axes is None:
            return sizes(shape)
        return "[" + ", ".join(f"{a} {n}" if a else str(n) for a, n in zip(axes, shape, strict=True)) + "]"

    def axes(self, shape: tuple[int, ...], name: str | None) -> tuple[str | None, ...] | None:
        """Axis names that the recorded steps give to the variable of this name and shape."""
        if name is None:
            return None
        for step in reversed(self.crash.steps):
            for info in step.outputs:
                if step.variable == name and info.shape == shape and any(info.axes):
                    return info.axes
        failed, op = self.failed, self.op
        if failed is not None and op is not None:
            # The step that raised: its inputs stand in the order of the operands.
            tensors = [node for node, _ in op.tensors]
            for node, info in zip(tensors, failed.inputs, strict=False):
                if self.text(node) == name and info.shape == shape and any(info.axes):
                    return info.axes
        return None

    @cached_property
    def failed(self) -> Step | None:
        """The recorded step that raised."""
        last = self.crash.steps[-1] if self.crash.steps else None
        return last if last is not None and last.error is not None else None

    @cached_property
    def op(self) -> Op | None:
        """The operation at the fault, with its operands worked out."""
        return self.operation_of(self.node, self.env)

    def operation_of(self, node: ast.AST | None, env: Env) -> Op | None:
        if isinstance(node, ast.Expr):
            node = node.value
        if node is None:
            return None
        known = operation(node, env, self.read)
        if known is None:
            return None
        name, operands = known
        inputs = tuple((operand, self.read(operand, env)) for operand in operands)
        keywords: dict[str, tuple[ast.expr, Any]] = {}
        callee: Any = None
        if isinstance(node, ast.Call):
            keywords = {
                str(word.arg): (word.value, self.read(word.value, env))
                for word in node.keywords
                if word.arg is not None
            }
            if isinstance(node.func, ast.Attribute):
                owner = self.read(node.func.value, env)
                if owner is not UNKNOWN and not is_tensor(owner):
                    callee = read(owner, node.func.attr)
            else:
                callee = self.read(node.func, env)
        return Op(name, node, inputs, keywords, callee)

    def history(
        self, node: ast.AST | None, env: Env | None = None, prefer: Callable[[Any], bool] | None = None
    ) -> list[Link]:
        return history(node, env or self.env, self.read, prefer)

    @cached_property
    def torch_frame(self) -> dict[str, Any]:
        """The locals of the innermost frame of PyTorch's own Python code, {} where there is none."""
        shots = list(chain(self.error.__traceback__))
        if not shots or self.shot is None:
            return {}
        last = shots[-1]
        return {} if last.frame is self.shot.frame else dict(last.frame.f_locals)

    # -- findings ------------------------------------------------------------------------------------

    def finding(
        self,
        code: str,
        message: str,
        *,
        label: str = "",
        labels: list[Label] | tuple[Label, ...] = (),
        notes: list[str] | tuple[str, ...] = (),
        help: str = "",
        at: Span | None = None,
    ) -> Diagnostic:
        span = at or self.span
        seen: set[tuple[int, int, int]] = set()
        kept: list[Label] = []
        for one in labels:
            key = (one.span.line, one.span.column, one.span.end_column)
            if key not in seen and (span is None or one.span != span):
                seen.add(key)
                kept.append(one)
        return Diagnostic(code, "error", message, span, label, tuple(kept[:3]), tuple(notes), help)
