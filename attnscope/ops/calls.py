"""What each function of PyTorch is called here, and what it does to memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F

NEW, VIEW, IN_PLACE = "new", "view", "in-place"


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One function as the recorder sees it.

    `name` is canonical (`matmul` for `@`, `getitem`, `mul` …). `memory` says whether the result can share
    its input's storage (`view`), never does (`new`) or is its input (`in-place`); `copies`, whether it
    holds the same elements moved elsewhere; `writes`, whether it writes into its first argument (or into
    `out=`); `hidden`, whether it may write into arguments that its name does not speak of; `sizes`, whether
    it only tells a shape; `functional`, whether it is a layer's own function rather than glue. `careful`:
    there is something to do before the call. `reenter` marks Python functions of PyTorch's that can be
    opened; `opened` is then the function to call. `always`: the result is a view whatever the arguments.
    `reflected`: its arguments come in the other order (`3 - x`).
    """

    name: str
    memory: str = VIEW
    copies: bool = False
    writes: bool = False
    out: bool = False
    hidden: bool = False
    sizes: bool = False
    functional: bool = False
    reenter: bool = False
    careful: bool = False
    always: bool = False
    reflected: bool = False
    opened: Callable[..., Any] = lambda: None


_CANONICAL = {
    "__matmul__": "matmul",
    "__rmatmul__": "matmul",
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "sub",
    "__rsub__": "sub",
    "rsub": "sub",
    "subtract": "sub",
    "__mul__": "mul",
    "__rmul__": "mul",
    "multiply": "mul",
    "__truediv__": "div",
    "__rtruediv__": "div",
    "__div__": "div",
    "__rdiv__": "div",
    "divide": "div",
    "true_divide": "div",
    "__floordiv__": "floor_divide",
    "__rfloordiv__": "floor_divide",
    "__mod__": "remainder",
    "__rmod__": "remainder",
    "__pow__": "pow",
    "__rpow__": "pow",
    "__neg__": "neg",
    "negative": "neg",
    "__abs__": "abs",
    "absolute": "abs",
    "__invert__": "invert",
    "bitwise_not": "invert",
    "__and__": "and",
    "__or__": "or",
    "__xor__": "xor",
    "__eq__": "eq",
    "__ne__": "ne",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
    "__getitem__": "getitem",
    "__setitem__": "setitem",
    "__iadd__": "add_",
    "__isub__": "sub_",
    "__imul__": "mul_",
    "__itruediv__": "div_",
    "__idiv__": "div_",
    "__iand__": "and_",
    "__ior__": "or_",
    "__ixor__": "xor_",
    "__ipow__": "pow_",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
    "concat": "cat",
    "concatenate": "cat",
    "special_softmax": "softmax",
    "_softmax": "softmax",
    "unsafe_chunk": "chunk",
    "unsafe_split": "split",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "moveaxis": "movedim",
}

_REFLECTED = frozenset("__rsub__ rsub __rdiv__ __rtruediv__ __rfloordiv__ __rmod__ __rpow__".split())

_ALWAYS_NEW = frozenset(
    """
    matmul mm bmm baddbmm addmm addbmm linear bilinear softmax log_softmax add sub mul div
    pow neg abs exp log sqrt rsqrt sin cos tanh sigmoid relu gelu silu eq ne lt le gt ge and or xor
    invert masked_fill where layer_norm rms_norm group_norm embedding cat stack tril triu ones zeros
    full empty arange eye rand randn ones_like zeros_like full_like empty_like rand_like randn_like
    linspace tensor sum mean var std amax amin argmax argmin cumsum logsumexp gather index_select
    scaled_dot_product_attention outer topk sort multi_head_attention_forward new_zeros new_ones
    new_full new_empty masked_select logical_and logical_or logical_not softplus clamp minimum
    maximum pad hstack vstack dstack
    """.split()
)
_ALWAYS_VIEW = frozenset(
    """
    view transpose permute split chunk unbind unsqueeze squeeze expand select narrow movedim T mT H mH t
    view_as unflatten detach split_with_sizes tensor_split diagonal unfold
    """.split()
)
_COPIES = frozenset(
    """
    reshape contiguous clone to repeat repeat_interleave flatten float half double
    bfloat16 long int bool type type_as tile flip roll cpu cuda ravel cast
    """.split()
)
_HIDDEN = frozenset("batch_norm instance_norm embedding embedding_bag".split())
_SIZES = frozenset({"shape", "size", "len"})
_GETTERS = frozenset({"T", "mT", "H", "mH", "data", "real", "imag", "grad"})

KNOWN: dict[Any, Op] = {}
_WRITING: dict[tuple[Op, bool], Op] = {}


def op_of(func: Any) -> Op:
    """The `Op` of a function that a `TorchFunctionMode` was handed."""
    known = KNOWN.get(func)
    if known is None:
        known = KNOWN[func] = _describe(func)
    return known


def writing(op: Op, kwargs: Mapping[str, Any]) -> Op:
    """The `Op` of a call that may have been told to write: `inplace=True`, or `out=` a tensor."""
    into = kwargs.get("out") is not None
    if not into and not kwargs.get("inplace"):
        return op
    known = _WRITING.get((op, into))
    if known is None:
        name = op.name if into else f"{op.name}_"
        known = _WRITING[op, into] = replace(
            op, name=name, memory=IN_PLACE, writes=True, out=into, careful=True
        )
    return known


def written(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that a call writes into, or may: running statistics, rows that are scaled to a norm."""
    if op.out:
        return [kwargs.get("out")]
    if not op.hidden:
        return [args[0]] if args else list(kwargs.values())
    if not op.name.startswith("embedding"):
        return [*args[1:], *kwargs.values()]
    norm = kwargs.get("max_norm", args[3] if len(args) > 3 else None)
    return [] if norm is None else [*args[:2], kwargs.get("weight")]


def _describe(func: Any) -> Op:
    name = str(getattr(func, "__name__", type(func).__name__))
    if name == "__get__":
        name = str(getattr(getattr(func, "__self__", None), "__name__", "?"))
        return Op(
            name,
            memory=VIEW if name in _GETTERS else NEW,
            sizes=name in _SIZES,
            always=name in _ALWAYS_VIEW,
        )
    if name == "__set__":
        name = str(getattr(getattr(func, "__self__", None), "__name__", "?"))
        return Op(f"{name}_", memory=IN_PLACE, writes=name == "data", careful=name == "data")
    name = name.partition(".")[0]  # `softmax.int`, an overload that an exported graph calls
    canonical = _CANONICAL.get(name, name)
    if canonical.startswith("__") and canonical.endswith("__"):
        canonical = canonical.strip("_")
    writes = canonical == "setitem" or (
        canonical.endswith("_") and not canonical.endswith("__") and canonical not in ("requires_grad_",)
    )
    memory = IN_PLACE if writes else NEW if canonical in _ALWAYS_NEW else VIEW
    reenter = func is F.multi_head_attention_forward
    return Op(
        canonical,
        memory=memory,
        copies=canonical in _COPIES,
        writes=writes,
        sizes=canonical in _SIZES,
        functional=_is_functional(func, canonical),
        reenter=reenter,
        hidden=canonical in _HIDDEN,
        careful=writes or reenter or canonical in _HIDDEN,
        always=canonical in _ALWAYS_VIEW,
        reflected=name in _REFLECTED,
        opened=_opened(func) if reenter else func,
    )


def _is_functional(func: Any, name: str) -> bool:
    """Whether this is what a layer of torch.nn is for: F.linear, F.softmax, torch.embedding …"""
    module = str(getattr(func, "__module__", "") or "")
    if module == "torch.nn.functional":
        return True
    return getattr(F, name, None) is func or getattr(torch._C._nn, name, None) is func


def _opened(func: Any) -> Callable[..., Any]:
    """A copy of a Python function of PyTorch's that does not hand itself over to the mode again."""
    scope = dict(func.__globals__)
    for check in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        scope[check] = _never
    copy = FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _never(*_: Any) -> bool:
    return False
