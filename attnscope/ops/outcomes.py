"""What common operations make of twins: shape, dtype and memory order, worked out here.

PyTorch could be asked on its `meta` device, and is for the rest. But the first computing operation there
imports its compiler, which takes more than a second, and these few are nearly all that attention needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLOATING = frozenset(
    "exp sqrt rsqrt tanh sigmoid cos sin log log2 reciprocal gelu silu softplus elu leaky_relu softmax "
    "log_softmax layer_norm rms_norm normalize".split()
)
SAME = FLOATING | frozenset(
    "relu abs neg square floor ceil round tril triu cumsum clamp nan_to_num roll masked_fill dropout "
    "triu_ tril_ masked_fill_ mul_ add_ sub_ div_ softmax_ exp_ copy_ fill_ zero_ clamp_".split()
)
BOOLEAN = frozenset("isnan isinf isfinite logical_not".split())
ARITHMETIC = frozenset(
    "add sub mul div true_divide pow remainder floor_divide maximum minimum and or xor bitwise_and "
    "bitwise_or bitwise_xor".split()
)
COMPARING = frozenset("eq ne lt le gt ge compare logical_and logical_or logical_xor".split())
ELEMENTWISE = ARITHMETIC | frozenset(
    "compare multiply subtract divide where eq ne lt le gt ge masked_fill masked_fill_ add_ sub_ mul_ div_ "
    "addcmul lerp logical_and logical_or logical_xor atan2 binary copy_ expand_as broadcast_to complex "
    "polar".split()
)
"""Their operands have to broadcast."""
REDUCING = frozenset("mean std var norm any all".split())


class Misfit(Exception):
    """The operands do not fit; PyTorch would raise as well."""


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape; raises Misfit where there is none. (PyTorch's own function imports a great deal.)"""
    found = [1] * max((len(shape) for shape in shapes), default=0)
    for shape in shapes:
        for axis in range(1, len(shape) + 1):
            size = int(shape[-axis])
            if size != 1 and found[-axis] not in (1, size):
                raise Misfit
            if size != 1:
                found[-axis] = size
    return tuple(found)


def like(tensor: Any, dtype: torch.dtype | None = None) -> Any:
    """A new twin in the memory order that PyTorch keeps: dense strides stay, others become contiguous."""
    kind = dtype or tensor.dtype
    dense, expected = True, 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            dense = dense and step == expected
            expected = step * size
    if dense:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device="meta")
    return torch.empty(tensor.shape, dtype=kind, device="meta")


def outcome(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The twin that an operation gives, or NotImplemented where it is not one of these.

    Raises Misfit (or another exception) where the operation itself would raise.
    """
    first = args[0] if args else None
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if not tensors and name not in ("cat", "concat", "stack", "einsum"):
        return NotImplemented
    special = _SPECIAL.get(name)
    if special is not None:
        return special(args, kwargs)
    if name in BOOLEAN and isinstance(first, torch.Tensor):
        return like(first, torch.bool)
    if name in SAME and isinstance(first, torch.Tensor):
        return _same(name, first, args, kwargs)
    if (name in ARITHMETIC or name in COMPARING) and len(args) == 2 and not kwargs:
        return binary(name, args[0], args[1])
    if name in REDUCING and isinstance(first, torch.Tensor):
        rest = {key: value for key, value in kwargs.items() if key in ("dim", "keepdim", "axis")}
        axes = [arg for arg in args[1:] if isinstance(arg, int | tuple | list) and not isinstance(arg, bool)]
        if name == "norm":
            axes = []
        reduced = first.to(torch.float32) if name in ("any", "all") else first
        made = (
            reduced.sum(*axes, **rest) if axes or rest else torch.empty((), dtype=first.dtype, device="meta")
        )
        return made.to(torch.bool) if name in ("any", "all") else made
    return NotImplemented


def factory(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The twin that a factory makes, or NotImplemented where it is not one of the common ones."""
    kind = kwargs.get("dtype")
    if kind is not None and not isinstance(kind, torch.dtype):
        return NotImplemented
    if name == "arange":
        numbers = [arg for arg in args if type(arg) in (int, float)]
        if len(numbers) != len(args) or not 1 <= len(args) <= 3 or set(kwargs) - {"dtype", "device"}:
            return NotImplemented
        start, end, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        count = math.ceil((end - start) / step)
        if count < 0:
            raise Misfit
        whole = all(type(number) is int for number in numbers)
        return torch.empty((count,), dtype=kind or (torch.int64 if whole else None), device="meta")
    if name in ("ones", "zeros", "empty", "rand", "randn") and not set(kwargs) - {"dtype", "device"}:
        shape = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
        return torch.empty(tuple(shape), dtype=kind, device="meta")
    if name == "full" and len(args) == 2 and not set(kwargs) - {"dtype", "device"}:
        value = args[1]
        kind = kind or (torch.bool if type(value) is bool else torch.int64 if type(value) is int else None)
        shape = (args[0],) if type(args[0]) is int else tuple(args[0])
        return torch.empty(shape, dtype=kind, device="meta")
    if name == "eye" and args and all(type(arg) is int for arg in args):
        return torch.empty((args[0], args[-1]), dtype=kind, device="meta")
    if name in ("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like"):
        return like(args[0], kind)
    return NotImplemented


def binary(name: str, left: Any, right: Any) -> Any:
    """`left` and `right` element by element, at least one of them a twin."""
    shapes = [tuple(one.shape) for one in (left, right) if isinstance(one, torch.Tensor)]
    shape = broadcast(*shapes)
    kind = torch.bool if name in COMPARING else torch.result_type(left, right)
    if name in ("div", "true_divide") and not (kind.is_floating_point or kind.is_complex):
        kind = torch.get_default_dtype()
    whole = next((one for one in (left, right) if isinstance(one, torch.Tensor) and one.shape == shape), None)
    return torch.empty(shape, dtype=kind, device="meta") if whole is None else like(whole, kind)


def _same(name: str, first: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    kind = first.dtype
    if name in FLOATING and not (kind.is_floating_point or kind.is_complex):
        kind = torch.get_default_dtype()
    if name == "cumsum" and kind in (torch.bool, torch.int32, torch.int8, torch.uint8):
        kind = torch.int64
    if isinstance(kwargs.get("dtype"), torch.dtype):
        kind = kwargs["dtype"]
    if name.startswith("masked_fill") and len(args) > 1 and isinstance(args[1], torch.Tensor):
        # Not only a mask that is too large: what is filled may itself be broadcast to the mask.
        shape = binary("and", first, args[1]).shape
        if shape != first.shape:
            return torch.empty(shape, dtype=kind, device="meta")
    if name in ("softmax", "log_softmax", "tril", "triu", "cumsum", "layer_norm", "roll"):
        return torch.empty(first.shape, dtype=kind, device="meta")
    return like(first, dtype=kind)


def matmul(left: Any, right: Any) -> Any:
    """`left @ right`, with broadcast leading axes."""
    if left.dtype != right.dtype or left.dim() == 0 or right.dim() == 0:
        raise Misfit
    rows = right.shape[-2] if right.dim() > 1 else right.shape[-1]
    if left.shape[-1] != rows:
        raise Misfit
    lead = broadcast(tuple(left.shape[:-2]), tuple(right.shape[:-2]))
    shape = [*lead]
    if left.dim() > 1:
        shape.append(left.shape[-2])
    if right.dim() > 1:
        shape.append(right.shape[-1])
    return torch.empty(shape, dtype=left.dtype, device="meta")


def _matmul(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) != 2 or kwargs or not all(isinstance(arg, torch.Tensor) for arg in args):
        return NotImplemented
    return matmul(args[0], args[1])


def _where(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) != 3 or kwargs:
        return NotImplemented
    condition, left, right = args
    if isinstance(left, torch.Tensor) and left.dtype == torch.bool and condition.dtype != torch.bool:
        condition, left = left, condition  # `x.where(mask, y)`: the receiver is what is kept
    chosen = (
        binary("add", left, right)
        if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor)
        else None
    )
    if chosen is None:
        return like(condition, dtype=torch.result_type(torch.empty(0), left))
    shape = binary("and", condition, chosen.to(torch.bool)).shape
    return torch.empty(shape, dtype=chosen.dtype, device="meta")


def _cat(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    items = [item for item in args[0] if isinstance(item, torch.Tensor)]
    axis = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0))
    if len(items) != len(args[0]) or not items:
        raise Misfit
    items = [item for item in items if item.dim() != 1 or item.shape[0]] or items
    shape = list(items[0].shape)
    axis = axis % len(shape)
    for item in items[1:]:
        if item.dim() != len(shape) or any(item.shape[i] != shape[i] for i in range(len(shape)) if i != axis):
            raise Misfit
    shape[axis] = sum(item.shape[axis] for item in items)
    kind = items[0].dtype
    for item in items[1:]:
        kind = torch.promote_types(kind, item.dtype)
    return torch.empty(shape, dtype=kind, device="meta")


def _stack(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    axis = args[1] if len(args) > 1 else kwargs.get("dim", 0)
    items = list(args[0])
    if not items or any(item.shape != items[0].shape for item in items):
        raise Misfit
    return _cat([[item.unsqueeze(axis) for item in items], axis], {})


def _attention(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    given = dict(zip(("query", "key", "value", "attn_mask"), args, strict=False)) | kwargs
    q, k, v, mask = given["query"], given["key"], given["value"], given.get("attn_mask")
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise Misfit
    lead = [tuple(one.shape[:-2]) for one in (q, k, v)]
    if given.get("enable_gqa"):
        lead = [shape[:-1] for shape in lead]
    if isinstance(mask, torch.Tensor):
        broadcast(tuple(mask.shape), (*q.shape[:-1], k.shape[-2]))
    shape = (*broadcast(*lead), q.shape[-2], v.shape[-1])
    if given.get("enable_gqa"):
        shape = (*q.shape[:-1], v.shape[-1])
    return torch.empty(shape, dtype=q.dtype, device="meta")


def _einsum(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    equation, operands = args[0], list(args[1:])
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return NotImplemented
    left, right = equation.replace(" ", "").split("->")
    sizes: dict[str, int] = {}
    terms = left.split(",")
    if len(terms) != len(operands) or len({one.dtype for one in operands}) > 1:
        raise Misfit
    for term, one in zip(terms, operands, strict=True):
        if len(term) != one.dim():
            raise Misfit
        for letter, size in zip(term, one.shape, strict=True):
            if sizes.setdefault(letter, int(size)) != size and 1 not in (size, sizes[letter]):
                raise Misfit
            sizes[letter] = max(sizes[letter], int(size))
    return torch.empty([sizes[letter] for letter in right], dtype=operands[0].dtype, device="meta")


def _outer(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    kind = torch.result_type(args[0], args[1])
    return torch.empty((args[0].shape[0], args[1].shape[0]), dtype=kind, device="meta")


def _polar(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    wide = args[0].dtype == torch.float64
    return torch.empty(args[1].shape, dtype=torch.complex128 if wide else torch.complex64, device="meta")


def _invert(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if args[0].is_floating_point():
        raise Misfit
    return like(args[0])


_SPECIAL: dict[str, Callable[[Sequence[Any], dict[str, Any]], Any]] = {
    "matmul": _matmul,
    "bmm": _matmul,
    "mm": _matmul,
    "where": _where,
    "cat": _cat,
    "concat": _cat,
    "stack": _stack,
    "scaled_dot_product_attention": _attention,
    "einsum": _einsum,
    "outer": _outer,
    "polar": _polar,
    "invert": _invert,
    "bitwise_not": _invert,
}
