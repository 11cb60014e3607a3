"""Reads what an expression was worth at the fault, without running any of the user's code.

Tensors are looked at through twins on the `meta` device: same shape, stride and dtype, no data. Names,
attributes and subscripts are read from the frame; arithmetic on sizes and PyTorch's own functions are
evaluated on the twins; helpers whose body is plain assignments are followed the same way. Everything
else is UNKNOWN.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import nn

from attnscope.crashes.frames import COMPREHENSIONS, Function, Shot, forward_arguments
from attnscope.crashes.outcomes import binary, factory, outcome
from attnscope.crashes.syntax import is_before, own_walk
from attnscope.source import parse


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Any = _Unknown()

_PLAIN = (int, float, complex, bool, str, type(None), slice, torch.dtype, torch.device, type(Ellipsis))
_FACTORIES = set(
    "zeros ones full empty rand randn randint arange linspace eye tensor zeros_like ones_like full_like "
    "empty_like rand_like randn_like tril_indices triu_indices randperm logspace as_tensor".split()
)
_FUNCTIONS = _FACTORIES | set(
    "matmul bmm mm baddbmm addmm einsum softmax log_softmax "
    "cat concat stack split chunk unbind tril triu where "
    "transpose permute swapaxes swapdims movedim moveaxis "
    "reshape flatten unsqueeze squeeze masked_fill exp sqrt "
    "rsqrt pow mul add sub div true_divide mean sum var std "
    "norm cumsum outer ger cos sin relu gelu silu tanh "
    "sigmoid dropout linear layer_norm rms_norm embedding scaled_dot_product_attention pad one_hot normalize "
    "logical_not logical_and logical_or logical_xor bitwise_not eq ne lt le gt ge max min maximum minimum "
    "clamp abs neg polar view_as_complex view_as_real "
    "repeat_interleave tile broadcast_to narrow index_select gather "
    "select roll flip isfinite isnan isinf finfo Size full multinomial argmax topk sort conv1d tensordot "
    "unflatten chunk hstack vstack dstack broadcast_tensors meshgrid complex outer softplus leaky_relu elu "
    "unfold fold interpolate square reciprocal log log2 floor ceil round diag diagonal cross_entropy".split()
)
_NO_METHODS = set(
    "item tolist numpy backward register_hook storage untyped_storage data_ptr map_ apply_ map2_ to_sparse "
    "retain_grad share_memory_ record_stream set_ requires_grad_ detach_ register_post_accumulate_grad_hook "
    "cuda cpu pin_memory resize_ bernoulli_ normal_ "
    "uniform_ random_ exponential_ geometric_ is_nonzero".split()
)
_BUILTINS: dict[str, Callable[..., Any]] = {
    name: getattr(builtins, name)
    for name in "len int float bool tuple list max min sum abs "
    "round range slice zip enumerate reversed dict".split()
}
_SAME_SHAPE = (
    "Dropout Identity ReLU GELU SiLU Tanh Sigmoid Softmax LogSoftmax LayerNorm RMSNorm GroupNorm BatchNorm1d "
    "LeakyReLU ELU Softplus Dropout1d Dropout2d AlphaDropout"
).split()
OPERATORS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BUDGET = 6000


def twin(tensor: torch.Tensor) -> Any:
    """The same shape, stride and dtype on `meta`; UNKNOWN for what has no strides (sparse, nested)."""
    try:
        return torch.empty_strided(
            tuple(torch.Tensor.size(tensor)), torch.Tensor.stride(tensor), dtype=tensor.dtype, device="meta"
        )
    except Exception:
        return UNKNOWN


def is_tensor(value: Any) -> TypeGuard[Any]:
    return issubclass(type(value), torch.Tensor)


def is_module(value: Any) -> TypeGuard[Any]:
    return issubclass(type(value), nn.Module)


def wrap(value: Any) -> Any:
    """A raw value of the user's as the evaluator keeps it: tensors (also in plain containers) as twins."""
    kind = type(value)
    if is_tensor(value):
        return value if kind is torch.Tensor and value.device.type == "meta" else twin(value)
    if kind in (tuple, list) and len(value) <= 256:
        return kind(wrap(item) for item in value)
    return value


def read(owner: Any, name: str) -> Any:
    """An attribute as it is stored, without running a property or `__getattr__`; UNKNOWN if it is not."""
    if is_tensor(owner):
        return _tensor_attribute(owner, name)
    if type(owner) is ModuleType:
        return vars(owner).get(name, UNKNOWN)
    try:
        own = object.__getattribute__(owner, "__dict__")
    except Exception:
        own = {}
    if type(own) is dict:
        if name in own:
            return own[name]
        if is_module(owner):
            for table in ("_parameters", "_buffers", "_modules"):
                kept = own.get(table)
                if isinstance(kept, dict) and name in kept:
                    return kept[name]
    try:
        static = inspect.getattr_static(owner, name)
    except Exception:
        return UNKNOWN
    if isinstance(static, MemberDescriptorType):
        try:
            return static.__get__(owner)
        except Exception:
            return UNKNOWN
    if isinstance(static, FunctionType) and not isinstance(owner, type):
        return MethodType(static, owner)
    if isinstance(static, staticmethod):
        return static.__func__
    if isinstance(static, property) or hasattr(type(static), "__get__"):
        # A tuple's named field is a descriptor written in C: reading it runs nothing of the user's.
        if issubclass(type(owner), tuple) and type(static).__name__ == "_tuplegetter":
            return static.__get__(owner)
        return static if isinstance(static, type) else UNKNOWN
    return static


def _tensor_attribute(owner: torch.Tensor, name: str) -> Any:
    if name in ("shape", "dtype", "ndim", "T", "mT", "H", "mH", "data", "real", "imag", "device"):
        try:
            return getattr(owner, name)
        except Exception:
            return UNKNOWN
    return UNKNOWN


class Env:
    """Where names come from: one point of a frame, or the arguments of a helper that is followed."""

    def lookup(self, name: str) -> Any:
        raise NotImplementedError

    def definition(self, name: str) -> tuple[ast.stmt, ast.expr, Env] | None:
        """(statement, target, the environment in which its right side is read) that gave `name` its value."""
        return None

    @property
    def key(self) -> tuple[object, ...] | None:
        """What an expression's value may be remembered under; None where it may not be."""
        return None


class Overlay(Env):
    """Another environment with some names bound: the turn of a comprehension."""

    def __init__(self, base: Env, names: dict[str, Any]) -> None:
        self.base, self.names = base, names

    def lookup(self, name: str) -> Any:
        return self.names[name] if name in self.names else self.base.lookup(name)

    def definition(self, name: str) -> tuple[ast.stmt, ast.expr, Env] | None:
        return None if name in self.names else self.base.definition(name)

    @property
    def key(self) -> tuple[object, ...] | None:
        base = self.base.key
        return None if base is None else (base, *((name, id(value)) for name, value in self.names.items()))


class HelperEnv(Env):
    """The names of a helper function while its body is followed."""

    def __init__(self, names: dict[str, Any], scope: dict[str, Any]) -> None:
        self.names, self.scope = names, scope

    def lookup(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        return self.scope.get(name, UNKNOWN)


class FrameEnv(Env):
    """The names of a frame as they were when the statement `where` began."""

    def __init__(self, frame: FrameReader, where: ast.stmt | None) -> None:
        self.frame, self.where = frame, where

    def lookup(self, name: str) -> Any:
        return self.frame.lookup(name, self.where)

    def definition(self, name: str) -> tuple[ast.stmt, ast.expr, Env] | None:
        found = self.frame.reaching(name, self.where)
        if found is None:
            return None
        return found[0], found[1], FrameEnv(self.frame, found[0])

    @property
    def key(self) -> tuple[object, ...] | None:
        return (id(self.frame), id(self.where))


class FrameReader:
    """One frame of the traceback: its locals at the fault, and earlier values worked out from its source."""

    def __init__(self, shot: Shot, outer: Shot | None, evaluator: Evaluator, error: BaseException) -> None:
        self.shot, self.evaluator = shot, evaluator
        self.error = error
        # A comprehension has a frame of its own; the function around it holds the other names.
        self.body = outer if shot.frame.f_code.co_name in COMPREHENSIONS and outer is not None else shot
        self.inner = shot.locals if self.body is not shot else {}
        self._defs: dict[str, list[tuple[ast.stmt, ast.expr]]] | None = None
        self._arguments: dict[str, Any] | None = None
        self._busy: set[tuple[str, int]] = set()

    @property
    def fault(self) -> ast.stmt | None:
        return self.body.statement

    def env(self, where: ast.stmt | None = None) -> FrameEnv:
        return FrameEnv(self, where or self.fault)

    @property
    def defs(self) -> dict[str, list[tuple[ast.stmt, ast.expr]]]:
        if self._defs is None:
            self._defs = definitions(self.body.function) if self.body.function is not None else {}
        return self._defs

    def reaching(self, name: str, where: ast.stmt | None) -> tuple[ast.stmt, ast.expr] | None:
        if name in self.inner or where is None:
            return None
        earlier = [pair for pair in self.defs.get(name, ()) if is_before(pair[0], where)]
        return earlier[-1] if earlier else None

    def lookup(self, name: str, where: ast.stmt | None) -> Any:
        if name in self.inner:
            return wrap(self.inner[name])
        known = self.body.locals
        if name not in known:
            scope = self.shot.frame.f_globals
            if name in scope:
                return wrap(scope[name])
            return _BUILTINS.get(name, UNKNOWN)
        fault = self.fault
        if where is None or fault is None or where is fault:
            return wrap(known[name])
        reached = self.reaching(name, where)
        start = reached[0] if reached else None
        later = [
            pair
            for pair in self.defs.get(name, ())
            if pair[0] is not start and not is_before(pair[0], where) and is_before(pair[0], fault)
        ]
        if not later:
            return wrap(known[name])
        if reached is None:
            return wrap(self.arguments().get(name, UNKNOWN))
        key = (name, id(reached[0]))
        if key in self._busy or self._uncertain(reached[0], where):
            return UNKNOWN
        self._busy.add(key)
        try:
            return self.evaluator.assigned(reached[0], reached[1], FrameEnv(self, reached[0]), name)
        finally:
            self._busy.discard(key)

    def _uncertain(self, statement: ast.stmt, where: ast.stmt) -> bool:
        """Whether the statement stands under a condition that does not also hold for `where`."""
        file = self.body.source
        if file is None:
            return True
        around = set(map(id, file.ancestors(where)))
        return any(
            isinstance(parent, ast.If | ast.For | ast.While | ast.Try) and id(parent) not in around
            for parent in file.ancestors(statement)
        )

    def arguments(self) -> dict[str, Any]:
        """What the function was called with, where PyTorch's own frame still holds it."""
        if self._arguments is None:
            self._arguments = {}
            code = self.body.frame.f_code
            called = forward_arguments(self.error, code)
            if called is not None:
                names = code.co_varnames[: code.co_argcount]
                self._arguments = dict(zip(names, (called[0], *called[1]), strict=False)) | called[2]
        return self._arguments


def definitions(function: ast.AST) -> dict[str, list[tuple[ast.stmt, ast.expr]]]:
    """Name → its assignments in source order, as (statement, the whole target)."""
    found: dict[str, list[tuple[ast.stmt, ast.expr]]] = {}
    for node in own_walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
            targets = [node.target]
        elif isinstance(node, ast.With):
            targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    found.setdefault(name.id, []).append((node, target))  # type: ignore[arg-type]
    return found


def place(target: ast.expr, name: str) -> tuple[int, ...] | None:
    """Where in an unpacking target a name stands: `()` for `x = …`, `(1,)` for `a, x = …`."""
    if isinstance(target, ast.Name):
        return () if target.id == name else None
    if isinstance(target, ast.Tuple | ast.List):
        if any(isinstance(item, ast.Starred) for item in target.elts):
            return None
        for index, item in enumerate(target.elts):
            inner = place(item, name)
            if inner is not None:
                return (index, *inner)
    return None


class Evaluator:
    """Evaluates expressions on twins. One per diagnosis: it carries the budget."""

    def __init__(self, observed: Callable[[ast.AST], Any] | None = None) -> None:
        self.observed = observed
        self.left = _BUDGET
        self.depth = 0
        # Environments are kept beside the values, so that the ids in their keys cannot come to mean others.
        self.known: dict[tuple[object, ...], tuple[Any, ast.AST, Env]] = {}

    def __call__(self, node: ast.AST | None, env: Env) -> Any:
        if node is None or self.depth > 80:
            return UNKNOWN
        place = env.key
        key = None if place is None else (id(node), *place)
        if key is not None and key in self.known:
            return self.known[key][0]
        if self.left <= 0:
            return UNKNOWN
        self.left -= 1
        value = self._evaluate(node, env)
        if value is UNKNOWN and isinstance(node, ast.Call) and isinstance(env, FrameEnv) and self.observed:
            value = self.observed(node)
        if key is not None:
            self.known[key] = (value, node, env)
        return value

    def _evaluate(self, node: ast.AST, env: Env) -> Any:
        self.depth += 1
        try:
            method = getattr(self, "_" + type(node).__name__, None)
            return UNKNOWN if method is None else method(node, env)
        except Exception:
            return UNKNOWN
        finally:
            self.depth -= 1

    def assigned(self, statement: ast.stmt, target: ast.expr, env: Env, name: str) -> Any:
        """What a statement gives to `name`."""
        path = place(target, name)
        if path is None:
            return UNKNOWN
        if isinstance(statement, ast.AugAssign):
            left = env.lookup(name)
            return self._binary(type(statement.op), left, self(statement.value, env))
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            return UNKNOWN
        return self.part(statement.value, path, env)

    def part(self, node: ast.expr | None, path: tuple[int, ...], env: Env) -> Any:
        if path and isinstance(node, ast.Tuple | ast.List) and not _starred(node.elts):
            return self.part(node.elts[path[0]], path[1:], env) if path[0] < len(node.elts) else UNKNOWN
        value = self(node, env)
        for index in path:
            if is_tensor(value) or (_parts(value) and index < len(value)):
                value = value[index]
            else:
                return UNKNOWN
        return value

    # -- expressions ------------------------------------------------------------------------------

    def _Constant(self, node: ast.Constant, env: Env) -> Any:
        return node.value

    def _Name(self, node: ast.Name, env: Env) -> Any:
        return env.lookup(node.id)

    def _NamedExpr(self, node: ast.NamedExpr, env: Env) -> Any:
        return self(node.value, env)

    def _Attribute(self, node: ast.Attribute, env: Env) -> Any:
        owner = self(node.value, env)
        return UNKNOWN if owner is UNKNOWN else wrap(read(owner, node.attr))

    def _Tuple(self, node: ast.Tuple, env: Env) -> Any:
        items = self._items(node.elts, env)
        return UNKNOWN if items is None else tuple(items)

    def _List(self, node: ast.List, env: Env) -> Any:
        return UNKNOWN if (items := self._items(node.elts, env)) is None else items

    def _items(self, nodes: list[ast.expr], env: Env) -> list[Any] | None:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                value = self(node.value, env)
                if not _parts(value):
                    return None
                found += list(value)
            else:
                found.append(self(node, env))
        return found

    def _Slice(self, node: ast.Slice, env: Env) -> Any:
        parts = [None if part is None else self(part, env) for part in (node.lower, node.upper, node.step)]
        return UNKNOWN if any(part is UNKNOWN for part in parts) else slice(*parts)

    def _Subscript(self, node: ast.Subscript, env: Env) -> Any:
        owner, index = self(node.value, env), self(node.slice, env)
        if (_has_unknown(owner) and not _parts(owner)) or _has_unknown(index):
            return UNKNOWN
        if is_tensor(owner) or type(owner) in (tuple, list, dict, str, torch.Size):
            return wrap(owner[index])
        if is_module(owner):
            children = read(owner, "_modules")
            keys = list(children) if isinstance(children, dict) else []
            return children[keys[index]] if isinstance(index, int) else children.get(index, UNKNOWN)
        return UNKNOWN

    def _UnaryOp(self, node: ast.UnaryOp, env: Env) -> Any:
        value = self(node.operand, env)
        if value is UNKNOWN or not _plain(value):
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return UNKNOWN if is_tensor(value) else not value
        if is_tensor(value):
            return outcome("invert" if isinstance(node.op, ast.Invert) else "neg", [value], {})
        if isinstance(node.op, ast.USub):
            return -value
        return ~value if isinstance(node.op, ast.Invert) else +value

    def _BinOp(self, node: ast.BinOp, env: Env) -> Any:
        return self._binary(type(node.op), self(node.left, env), self(node.right, env))

    def _binary(self, kind: type, left: Any, right: Any) -> Any:
        if left is UNKNOWN or right is UNKNOWN or not (_plain(left) and _plain(right)):
            return UNKNOWN
        if (
            kind in (ast.Pow, ast.LShift)
            and not is_tensor(left)
            and not is_tensor(right)
            and (abs(left) > 1e9 or abs(right) > 64)
        ):
            return UNKNOWN
        if kind is ast.Mult and (_long(left) or _long(right)):
            return UNKNOWN
        if is_tensor(left) or is_tensor(right):
            found = outcome(OPERATORS.get(kind, ""), [left, right], {})
            if found is not NotImplemented:
                return found
        return _BINARY[kind](left, right)

    def _Compare(self, node: ast.Compare, env: Env) -> Any:
        if len(node.ops) != 1:
            return UNKNOWN
        left, right = self(node.left, env), self(node.comparators[0], env)
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        kind = type(node.ops[0])
        if kind in (ast.Is, ast.IsNot):
            return (left is right) == (kind is ast.Is)
        if not (_plain(left) and _plain(right)):
            return UNKNOWN
        if is_tensor(left) or is_tensor(right):
            return binary("compare", left, right)
        return _COMPARE[kind](left, right)

    def _BoolOp(self, node: ast.BoolOp, env: Env) -> Any:
        value: Any = UNKNOWN
        for item in node.values:
            value = self(item, env)
            if not _decided(value):
                return UNKNOWN
            if bool(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def _IfExp(self, node: ast.IfExp, env: Env) -> Any:
        test = self(node.test, env)
        return self(node.body if test else node.orelse, env) if _decided(test) else UNKNOWN

    def _Starred(self, node: ast.Starred, env: Env) -> Any:
        return self(node.value, env)

    def _GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp, env: Env) -> Any:
        turns = self.turns(node, env)
        return UNKNOWN if turns is None else [self(node.elt, turn) for turn in turns]

    _ListComp = _GeneratorExp

    def turns(self, node: ast.GeneratorExp | ast.ListComp, env: Env) -> list[Env] | None:
        """One environment for each turn of a comprehension with one plain `for`."""
        if len(node.generators) != 1 or node.generators[0].ifs:
            return None
        items = self(node.generators[0].iter, env)
        if is_tensor(items):
            items = list(items.unbind(0)) if items.dim() > 0 and items.size(0) <= 64 else UNKNOWN
        if is_module(items):
            items = list((read(items, "_modules") or {}).values())
        if type(items) in (range, zip, enumerate):
            items = list(items)[:64]
        if not _parts(items) or len(items) > 64:
            return None
        target = node.generators[0].target
        turns: list[Env] = []
        for item in items:
            names: dict[str, Any] = {}
            if not _bind(target, item, names):
                return None
            turns.append(Overlay(env, names))
        return turns

    # -- calls ------------------------------------------------------------------------------------

    def _Call(self, node: ast.Call, env: Env) -> Any:
        args = self._items(node.args, env)
        if args is None or any(word.arg is None for word in node.keywords):
            return UNKNOWN
        kwargs = {str(word.arg): self(word.value, env) for word in node.keywords}
        if isinstance(node.func, ast.Attribute):
            owner = self(node.func.value, env)
            if is_tensor(owner):
                return self._method(owner, node.func.attr, args, kwargs)
            if type(owner) is dict and node.func.attr in ("get", "items", "keys", "values"):
                return wrap(getattr(owner, node.func.attr)(*args))
            if type(owner) is ModuleType:
                return self.call(vars(owner).get(node.func.attr, UNKNOWN), args, kwargs)
            return UNKNOWN if owner is UNKNOWN else self.call(read(owner, node.func.attr), args, kwargs)
        return self.call(self(node.func, env), args, kwargs)

    def _method(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in ("cuda", "cpu", "detach_", "requires_grad_", "pin_memory"):
            return owner
        if name in _NO_METHODS or name.startswith("_"):
            return UNKNOWN
        if name in ("to", "type"):
            kinds = [item for item in (*args, *kwargs.values()) if isinstance(item, torch.dtype)]
            others = [item.dtype for item in args if is_tensor(item)]
            if any(item is UNKNOWN for item in (*args, *kwargs.values())) and not kinds:
                return owner
            chosen = (kinds or others)[:1]
            return owner.to(chosen[0]) if chosen else owner
        kwargs = {key: value for key, value in kwargs.items() if key != "device"}
        if _has_unknown(args) or _has_unknown(list(kwargs.values())):
            return UNKNOWN
        if name.startswith("new_"):
            kwargs["device"] = "meta"
        found = outcome(name, [owner, *args], kwargs)
        return getattr(torch.Tensor, name)(owner, *args, **kwargs) if found is NotImplemented else found

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if function is UNKNOWN or function is None:
            return UNKNOWN
        if is_module(function):
            return self._module(function, args, kwargs)
        if any(function is known for known in _BUILTINS.values()):
            # A builtin asks its arguments (`len`, `iter`): only plain ones are given to it.
            usable = all(_plain(arg) or type(arg) in (range, zip, enumerate, dict) for arg in args)
            return function(*args, **kwargs) if usable and not _has_unknown(args) else UNKNOWN
        if type(function) is MethodType:
            method: Any = function
            return self._helper(method.__func__, [method.__self__, *args], kwargs)
        if type(function) not in (FunctionType, BuiltinFunctionType, type(torch.finfo), type(torch.relu)):
            return UNKNOWN
        name = function.__name__
        if any(table.get(name) is function for table in (vars(torch), vars(F))):
            return self._torch(function, name, args, kwargs)
        if type(function) is FunctionType:
            return self._helper(function, args, kwargs)
        if name in vars(math) and vars(math)[name] is function and not _has_unknown(args):
            return function(*args)
        return UNKNOWN

    def _torch(self, function: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name not in _FUNCTIONS:
            return UNKNOWN
        if name == "dropout":
            return args[0] if args else UNKNOWN
        if name == "linear" and len(args) > 1 and is_tensor(args[0]) and is_tensor(args[1]):
            return _linear(args[0], args[1])
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "generator", "pin_memory")}
        if name in _FACTORIES:
            if name in ("tensor", "as_tensor"):
                return UNKNOWN if _has_unknown(args) else function(*args, **kwargs, device="meta")
            if name == "full" and len(args) > 1 and args[1] is UNKNOWN:
                return UNKNOWN
            if not _has_unknown(args) and not _has_unknown(list(kwargs.values())):
                made = factory(name, args, kwargs)
                if made is not NotImplemented:
                    return made
            kwargs["device"] = "meta"
        if _has_unknown(args) or _has_unknown(list(kwargs.values())):
            return UNKNOWN
        found = outcome(name, args, kwargs)
        return function(*args, **kwargs) if found is NotImplemented else found

    def _module(self, module: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        kind = type(module)
        value = args[0] if args else next(iter(kwargs.values()), UNKNOWN)
        if not kind.__module__.startswith("torch.nn."):
            forward = inspect.getattr_static(kind, "forward", None)
            if isinstance(forward, FunctionType) and "forward" not in read(module, "__dict__"):
                return self._helper(forward, [module, *args], kwargs)
            return UNKNOWN
        if kind.__name__ == "Sequential":
            for child in read(module, "_modules").values():
                value = self._module(child, [value], {})
            return value
        if not is_tensor(value):
            return UNKNOWN
        if kind.__name__ in ("Linear", "NonDynamicallyQuantizableLinear"):
            return _linear(value, read(module, "weight"))
        if kind.__name__ == "Embedding":
            weight = read(module, "weight")
            return torch.empty((*value.shape, weight.shape[-1]), dtype=weight.dtype, device="meta")
        if kind.__name__ == "MultiheadAttention":
            return (torch.empty(tuple(value.shape), dtype=value.dtype, device="meta"), UNKNOWN)
        return value if kind.__name__ in _SAME_SHAPE else UNKNOWN

    def _helper(self, function: FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A user's function whose body is plain assignments, followed on twins."""
        found = helper_body(function)
        if found is None or self.depth > 40:
            return UNKNOWN
        names: dict[str, Any] = {}
        parameters = found.args.args
        defaults = function.__defaults__ or ()
        for parameter, default in zip(parameters[len(parameters) - len(defaults) :], defaults, strict=False):
            names[parameter.arg] = wrap(default)
        names.update({p.arg: wrap(v) for p, v in zip(parameters, args, strict=False)})
        names.update((function.__kwdefaults__ or {}) | kwargs)
        env = HelperEnv(names, dict(_BUILTINS) | function.__globals__ | _closure(function))
        return self._run(found.body, env, names)

    def _run(self, body: list[ast.stmt], env: Env, names: dict[str, Any]) -> Any:
        for statement in body:
            if isinstance(statement, ast.Return):
                return self(statement.value, env)
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    for name in [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]:
                        if place(target, name) is not None:
                            names[name] = self.assigned(statement, target, env, name)
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                names[name] = self.assigned(statement, statement.target, env, name)
            elif isinstance(statement, ast.If):
                test = self(statement.test, env)
                if not _decided(test):
                    return UNKNOWN
                inner = self._run(statement.body if test else statement.orelse, env, names)
                if inner is not None:
                    return inner
            elif not isinstance(statement, ast.Expr | ast.Assert | ast.Pass):
                return UNKNOWN
        return None


def _linear(value: Any, weight: Any) -> Any:
    """What a linear layer makes of a twin, by shape alone; UNKNOWN where the features or dtypes differ."""
    if value.shape[-1] != weight.shape[-1] or value.dtype != weight.dtype:
        return UNKNOWN
    return torch.empty((*value.shape[:-1], weight.shape[0]), dtype=value.dtype, device="meta")


def helper_body(function: FunctionType) -> Function | None:
    """The `def` of a function, found by the line of its code."""
    parsed = parse(function.__code__.co_filename)
    if parsed is None:
        return None
    line = function.__code__.co_firstlineno
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == line:
                return node
    return None


def _closure(function: FunctionType) -> dict[str, Any]:
    cells = function.__closure__ or ()
    found = {}
    for name, cell in zip(function.__code__.co_freevars, cells, strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _bind(target: ast.expr, value: Any, names: dict[str, Any]) -> bool:
    if isinstance(target, ast.Name):
        names[target.id] = value
        return True
    if isinstance(target, ast.Tuple | ast.List) and _parts(value):
        if len(target.elts) != len(value):
            return False
        return all(_bind(t, v, names) for t, v in zip(target.elts, value, strict=True))
    return False


def _parts(value: Any) -> TypeGuard[Any]:
    """Whether the value is a tuple or a list; asked of its type, for an object can lie about its class."""
    return issubclass(type(value), tuple | list)


def _starred(nodes: list[ast.expr]) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)


def _has_unknown(value: Any) -> bool:
    if value is UNKNOWN:
        return True
    return _parts(value) and any(_has_unknown(item) for item in value[:64])


def _plain(value: Any) -> bool:
    """Whether Python's own operators on the value run no code of the user's."""
    if is_tensor(value) or type(value) in _PLAIN:
        return True
    return type(value) in (tuple, list, torch.Size) and all(map(_plain, value))


def _long(value: Any) -> bool:
    return type(value) is str or _parts(value)


def _decided(value: Any) -> bool:
    return (
        value is not UNKNOWN and not is_tensor(value) and type(value) in (bool, int, float, str, type(None))
    )
