"""Tensors in what a module is given and gives back: the first one, all of them, each of them changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

_DEEPEST = 20  # a list may hold itself


def storage_of(tensor: Tensor) -> int:
    """A number that tensors sharing memory have in common (`data_ptr` is 0 on the meta device)."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def is_tensor(value: Any) -> bool:
    """Like `isinstance`, without asking `value` itself, which may answer with an exception."""
    return issubclass(type(value), Tensor)


def tensors_of(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """The tensors in a result, in order: in tuples, lists, mappings, dataclasses and objects with attributes.

    Of a module's own tensors none: a layer that is handed back beside a result is no result.
    """
    if is_tensor(value):
        yield value
    elif depth < _DEEPEST:
        for item in _held(value):
            yield from tensors_of(item, depth + 1)


def first_tensor(value: Any) -> Tensor | None:
    """The first floating or complex tensor of a result; where there is none, the first of any kind."""
    first: Tensor | None = None
    for tensor in tensors_of(value):
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor
        first = tensor if first is None else first
    return first


def _held(value: Any) -> list[Any]:
    kind = type(value)
    if issubclass(kind, Mapping):
        return list(value.values())
    if issubclass(kind, tuple | list):
        return list(value)
    if issubclass(kind, nn.Module | type):
        return []
    if is_dataclass(kind):
        return [getattr(value, field.name, None) for field in fields(kind)]
    attributes = getattr(value, "__dict__", None)
    return list(attributes.values()) if type(attributes) is dict else []


def tree_map(change: Callable[[Tensor], Any], value: Any, memo: dict[int, Any] | None = None) -> Any:
    """`value` with `change` done to each tensor in its tuples, lists and dicts; one given twice stays one."""
    memo = {} if memo is None else memo
    kind = type(value)
    if issubclass(kind, Tensor):
        if id(value) not in memo:
            memo[id(value)] = change(value)
        return memo[id(value)]
    if kind in (tuple, list):
        return kind(tree_map(change, item, memo) for item in value)
    if kind is dict:
        return {key: tree_map(change, item, memo) for key, item in value.items()}
    return value
