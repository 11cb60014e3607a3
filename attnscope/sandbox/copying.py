"""Deep copies that compute with their own parts: functions, which `deepcopy` does not copy, are made anew.

A lambda that a block keeps over its own layers (`m = self.mlp; self.mlpf = lambda x: m.down(m.up(x))`) would
call in a copy the layers of the original, and to move or to cast the copy would move half of it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import CellType, FunctionType
from typing import Any, TypeVar

from torch import Tensor, nn

_DEEPEST = 4
Copied = TypeVar("Copied")


def deep_copy(value: Copied) -> Copied:
    """A deep copy; in that of a module, functions that are kept as attributes hold the parts of the copy."""
    memo: dict[int, Any] = {}
    made = copy.deepcopy(value, memo)
    for part in made.modules() if isinstance(made, nn.Module) else ():
        for name, value in list(vars(part).items()):
            if isinstance(value, FunctionType):
                part.__dict__[name] = _rebound(value, memo)
    return made


def copied(value: Copied) -> Copied | None:
    """A deep copy, or None where a module or an object does not allow one."""
    try:
        return deep_copy(value)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def cloned(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """The same arguments with tensors copied; one tensor given twice stays one, dicts and lists are new.

    So are objects that hold state, a cache or a module: each run must find them as the first one did.
    """
    memo = {} if memo is None else memo
    if isinstance(value, Tensor):
        if id(value) not in memo:
            memo[id(value)] = value.detach().clone()
        return memo[id(value)]
    if type(value) in (tuple, list):
        return type(value)(cloned(item, memo) for item in value)
    if type(value) is dict:
        return {key: cloned(item, memo) for key, item in value.items()}
    holds_state = not isinstance(value, type) and not callable(value) and hasattr(value, "__dict__")
    if isinstance(value, nn.Module) or holds_state:
        if id(value) not in memo:
            made = copied(value)
            memo[id(value)] = value if made is None else made
        return memo[id(value)]
    return value


def _rebound(function: FunctionType, memo: Mapping[int, Any]) -> FunctionType:
    """The same function over the copies of what its closure and its defaults hold."""
    cells = tuple(_cell(cell, memo) for cell in function.__closure__ or ())
    defaults = tuple(memo.get(id(value), value) for value in function.__defaults__ or ())
    if all(map(_same, cells, function.__closure__ or ())) and all(map(_same, defaults, _defaults(function))):
        return function
    made = FunctionType(function.__code__, function.__globals__, function.__name__, defaults or None, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made


def _defaults(function: FunctionType) -> tuple[Any, ...]:
    return function.__defaults__ or ()


def _same(one: Any, other: Any) -> bool:
    return one is other


def _cell(cell: CellType, memo: Mapping[int, Any]) -> CellType:
    try:
        held = cell.cell_contents
    except ValueError:  # not set yet
        return cell
    if isinstance(held, FunctionType):
        inner = _rebound(held, memo)
        return cell if inner is held else CellType(inner)
    return CellType(memo[id(held)]) if id(held) in memo else cell


def kept_outside(module: nn.Module) -> str | None:
    """A function in a list or a dict of the module that holds parts of it: there a copy shares them."""
    own: set[int] = {id(part) for part in module.modules()}
    own |= {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            inside = not name.startswith("_") and type(value) in (list, tuple, dict)
            if inside and any(id(held) in own for held in _held(value, 0)):
                return f"{path}.{name}" if path else name
    return None


def _held(value: Any, depth: int) -> Iterator[Any]:
    """Modules and tensors in the closures of functions in a container."""
    if depth > _DEEPEST:
        return
    items: list[Any] = []
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                items.append(cell.cell_contents)
            except ValueError:  # not set yet
                continue
        yield from (item for item in items if isinstance(item, nn.Module | Tensor))
    elif type(value) in (list, tuple):
        items = list(value)
    elif type(value) is dict:
        items = list(value.values())
    for item in items:
        yield from _held(item, depth + 1)
