"""Values of the user's looked at without running any of the user's code.

Tensors are kept as twins on the `meta` device: same shape, stride and dtype, no data. Attributes are read
as they are stored; what cannot be told is UNKNOWN.
"""

from __future__ import annotations

import inspect
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, TypeGuard

import torch
from torch import nn

from attnscope.crashes.frames import Function
from attnscope.schema import TensorInfo
from attnscope.source import parse


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Any = _Unknown()
_PLAIN = (int, float, complex, bool, str, type(None), slice, torch.dtype, torch.device, type(Ellipsis))

INTERNALS = frozenset(
    "training _parameters _buffers _modules _non_persistent_buffers_set _backward_pre_hooks _backward_hooks "
    "_is_full_backward_hook _forward_hooks _forward_hooks_with_kwargs _forward_hooks_always_called "
    "_forward_pre_hooks _forward_pre_hooks_with_kwargs _state_dict_hooks _state_dict_pre_hooks "
    "_load_state_dict_pre_hooks _load_state_dict_post_hooks".split()
)


def twin(tensor: torch.Tensor) -> Any:
    """The same shape, stride and dtype on `meta`; UNKNOWN for what has no strides (sparse, nested)."""
    try:
        return torch.empty_strided(
            tuple(torch.Tensor.size(tensor)), torch.Tensor.stride(tensor), dtype=tensor.dtype, device="meta"
        )
    except Exception:
        return UNKNOWN


def twin_of(info: TensorInfo) -> Any:
    """A recorded tensor as a twin."""
    kind = getattr(torch, info.dtype.removeprefix("torch."), None)
    if not isinstance(kind, torch.dtype):
        return UNKNOWN
    return torch.empty_strided(info.shape, info.stride, dtype=kind, device="meta")


def is_tensor(value: Any) -> TypeGuard[Any]:
    return issubclass(type(value), torch.Tensor)


def is_module(value: Any) -> TypeGuard[Any]:
    return issubclass(type(value), nn.Module)


def is_parts(value: Any) -> TypeGuard[Any]:
    """Whether the value is a tuple or a list; asked of its type, for an object can lie about its class."""
    return issubclass(type(value), tuple | list)


def is_plain(value: Any) -> bool:
    """Whether Python's own operators on the value run no code of the user's."""
    if type(value) in _PLAIN:
        return True
    return type(value) in (tuple, list, torch.Size) and all(map(is_plain, value))


def wrap(value: Any) -> Any:
    """A raw value of the user's as it is looked at: tensors (also in plain containers) as twins."""
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


def held(owner: Any) -> dict[str, Any]:
    """What an object holds, without asking it: its `__dict__`, and a module's tables."""
    try:
        own = dict(object.__getattribute__(owner, "__dict__"))
    except Exception:
        return {}
    if is_module(owner):
        tables: dict[str, Any] = {}
        for table in ("_parameters", "_buffers", "_modules"):
            kept = own.get(table)
            tables |= kept if isinstance(kept, dict) else {}
        own = {k: v for k, v in own.items() if k not in INTERNALS or k == "training"} | tables
    return {k: v for k, v in own.items() if isinstance(k, str)}


def _tensor_attribute(owner: torch.Tensor, name: str) -> Any:
    if name in ("shape", "dtype", "ndim", "T", "mT", "H", "mH", "data", "real", "imag", "device"):
        try:
            return getattr(owner, name)
        except Exception:
            return UNKNOWN
    return UNKNOWN


def helper_body(function: FunctionType) -> Function | None:
    """The `def` of a function, found by the line of its code."""
    import ast

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
