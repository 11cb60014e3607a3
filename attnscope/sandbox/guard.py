"""A run leaves no mark: module, buffers, inputs, random numbers and global modes come back."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import is_
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from attnscope.sandbox.state import global_state
from attnscope.sandbox.tensors import storage_of

_TABLES = frozenset({dict, set, OrderedDict})
_ATOMS = frozenset({bool, int, float, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size})
_HOOKS = frozenset(name for name in vars(nn.Identity()) if "_hooks" in name)
_DEEPEST = 6
_FOREIGN = frozenset(
    {"builtins", "torch", "numpy", "types", "functools", "typing", "enum", "threading", "_thread"}
)


class Guard:
    """Copies a watched tensor the first time that something is about to write into its memory."""

    def __init__(self, watched: Iterable[Tensor]) -> None:
        self._watched = list(watched)
        self._leaves = [(x, x.requires_grad, x.grad) for x in self._watched if x.is_leaf]
        self._by_storage: dict[int, list[Tensor]] | None = None
        self._saved: list[tuple[Tensor, Tensor, Tensor]] = []
        self._done: set[int] = set()

    def before_write(self, written: Tensor) -> None:
        """Call this before an operation writes into `written` or into the memory that it views."""
        if self._by_storage is None:  # most runs write into nothing that is watched: index on first need
            self._by_storage = {}
            for tensor in self._watched:
                store = storage_of(tensor)
                self._by_storage.setdefault(store, []).append(tensor)
        store = storage_of(written)
        if store in self._done:
            return
        self._done.add(store)
        for tensor in self._by_storage.get(store, ()):
            self.save(tensor)

    def save(self, tensor: Tensor) -> None:
        """Keep the values of `tensor` as they are now, and where in memory they stand."""
        data = tensor.data  # unlike `detach`, it does not share the version that a backward checks
        self._saved.append((tensor, data, data.clone()))

    def restore(self) -> None:
        """Write the kept values back."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for tensor, data, values in self._saved:
                with suppress(RuntimeError):  # memory that was freed meanwhile
                    data.copy_(values)
                    moved = storage_of(tensor) != storage_of(data)
                    if moved or tensor.shape != data.shape or tensor.stride() != data.stride():
                        tensor.data = data
            for leaf, requires_grad, grad in self._leaves:
                if leaf.is_leaf and leaf.requires_grad is not requires_grad:
                    leaf.requires_grad_(requires_grad)
                if leaf.grad is not grad:
                    leaf.grad = grad


_ATOM, _TENSOR, _OWN, _LIBRARY, _DICT, _LIST, _TUPLE, _OBJECT, _BYTES, _GENERATOR = range(10)
_MOST_BYTES = 1 << 20  # what is larger and no tensor is not copied at each run


def _sort(kind: type) -> int:
    """What a value of this type is to a run that must leave no mark."""
    if issubclass(kind, Tensor):
        return _TENSOR
    if issubclass(kind, nn.Module):
        return _LIBRARY if kind.__module__.startswith("torch.nn.modules") else _OWN
    if issubclass(kind, dict):
        return _DICT
    if issubclass(kind, list | set | deque):
        return _LIST
    if issubclass(kind, tuple):
        return _TUPLE
    if issubclass(kind, bytearray) or _is_array(kind):
        return _BYTES
    if issubclass(kind, torch.Generator | random.Random) or hasattr(kind, "bit_generator"):
        return _GENERATOR
    if issubclass(kind, SimpleNamespace):
        return _OBJECT
    if issubclass(kind, type) or str(kind.__module__).split(".", 1)[0] in _FOREIGN:
        return _ATOM
    return _OBJECT


class _Kept:
    """What the containers of a module, of its parts and of its inputs held before the run."""

    def __init__(self) -> None:
        self.watched: list[Tensor] = []
        self._tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._libraries: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._empty: list[Any] = []
        self._others: list[tuple[Any, list[Any]]] = []
        self._seen: set[int] = set()
        self._sorts: dict[type, int] = {}
        self._undo: list[Callable[[], Any]] = []
        self._next_hook = RemovableHandle.next_id

    def keep(self, value: Any, depth: int = 0) -> None:
        """Remember `value` and what it holds: tensors are watched, containers copied (not deeply)."""
        kind = type(value)
        sort = self._sorts.get(kind)
        if sort is None:
            sort = self._sorts[kind] = _sort(kind)
        if sort == _ATOM or depth > _DEEPEST:
            return
        if sort == _TENSOR:
            self.watched.append(value)
            return
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if sort == _LIBRARY:
            self._library(value.__dict__, depth)
        elif sort == _OWN:
            self._own(vars(value), depth)
        elif sort == _DICT:
            self._tables.append((value, dict(dict.items(value))))
            self._keep_all(dict.values(value), depth)
        elif sort == _LIST:
            items = [*_base(value).__iter__(value)]
            self._others.append((value, items))
            self._keep_all(items, depth)
        elif sort == _TUPLE:
            self._keep_all(tuple.__iter__(value), depth)
        elif sort == _BYTES:
            self._bytes(value)
        elif sort == _GENERATOR:
            self._undo.append(_rewinding(value))
        else:
            self._object(value, depth)

    def _bytes(self, value: Any) -> None:
        if sys.getsizeof(value) <= _MOST_BYTES:
            whole = slice(None) if isinstance(value, bytearray) else Ellipsis
            self._undo.append(partial(type(value).__setitem__, value, whole, value.copy()))

    def _object(self, value: Any, depth: int) -> None:
        state = _state_of(value)
        if state:
            self.keep(state, depth + 1)
        for name in _slots(type(value)):
            try:
                held = object.__getattribute__(value, name)
            except AttributeError:  # not set
                continue
            self.keep(held, depth + 1)
            self._undo.append(partial(object.__setattr__, value, name, held))

    def _keep_all(self, values: Iterable[Any], depth: int) -> None:
        for value in values:
            if type(value) not in _ATOMS:
                self.keep(value, depth + 1)

    # Paid for at each module of each run: empty tables are only noted to be empty.

    def _own(self, state: dict[str, Any], depth: int) -> None:
        self._tables.append((state, state.copy()))
        for name, value in state.items():
            kind = type(value)
            if kind in _ATOMS or (name in _HOOKS and not value):
                continue
            if kind in _TABLES and not value:
                self._empty.append(value)
            elif name == "_modules" and isinstance(value, dict):  # a scripted module's is none
                self._tables.append((value, value.copy()))
                for child in value.values():
                    self.keep(child, depth)
            else:
                self.keep(value, depth + 1)

    def _library(self, state: dict[str, Any], depth: int) -> None:
        self._libraries.append((state, state.copy()))
        table = state.get("_parameters")
        if table:
            self._tables.append((table, table.copy()))
            self.watched += [value for value in table.values() if value is not None]
        table = state.get("_buffers")
        if table:
            self.keep(table)
        table = state.get("_modules")
        if table:
            self._tables.append((table, table.copy()))
            for child in table.values():
                self.keep(child, depth)

    def _drop_hooks(self, state: dict[Any, Any]) -> None:
        for name, table in state.items():
            if name in _HOOKS and isinstance(table, dict):
                for hook in [key for key in table if isinstance(key, int) and key >= self._next_hook]:
                    del table[hook]

    def restore(self) -> None:
        """Put back what any container held."""
        for state, before in self._libraries:
            if not _same(state, before):
                _fill(state, before)
        if RemovableHandle.next_id != self._next_hook:  # a hook was set somewhere
            for state, _ in [*self._libraries, *self._tables]:
                self._drop_hooks(state)
        for table, before in self._tables:
            if not _same(table, before):
                _fill(table, before)
        for empty in self._empty:
            if empty:
                empty.clear()
        for value, items in self._others:
            base = _base(value)
            if base.__len__(value) != len(items) or not all(map(is_, base.__iter__(value), items)):
                base.clear(value)
                (base.update if base is set else base.extend)(value, items)
        for undo in self._undo:
            undo()


def _is_array(kind: type) -> bool:
    numpy: Any = sys.modules.get("numpy")  # not imported: nothing is an array of it
    return numpy is not None and issubclass(kind, numpy.ndarray)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        yield from (names,) if isinstance(names, str) else (x for x in names if x[:2] != "__")


def _rewinding(generator: Any) -> Callable[[], Any]:
    """What sets a random number generator of the module's own back to where it stands."""
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    source = generator.bit_generator
    return partial(setattr, source, "state", source.state)


def _base(value: Any) -> Any:
    """The built-in class whose methods do what they say, whatever a class of the user's made of them."""
    kind = type(value)
    return set if issubclass(kind, set) else list if issubclass(kind, list) else deque


def _same(table: dict[Any, Any], before: dict[Any, Any]) -> bool:
    """Whether nothing was put in another's place; values are asked only where they are other objects."""
    try:
        return bool(dict.__eq__(table, before))
    except Exception:  # a tensor in place of another one: whether they are equal is no yes or no
        return False


def _fill(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    dict.clear(table)
    dict.update(table, before)


def _state_of(value: Any) -> dict[str, Any] | None:
    try:
        state = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return state if type(state) is dict else None


@contextmanager
def preserved(module: nn.Module, inputs: Iterable[Any] = ()) -> Iterator[Guard]:
    """Everything inside may change the module, its inputs, RNG and global modes; none of it lasts.

    Buffers, parameters and inputs are copied only when a write into them is announced to the guard, since
    a causal mask for a long context is large.
    """
    kept = _Kept()
    kept.keep(module)
    for value in inputs:
        kept.keep(value)
    guard = Guard(kept.watched)
    with global_state():
        try:
            yield guard
        finally:
            guard.restore()
            kept.restore()


def walk(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each registered module with its path, parents first, shared ones once.

    Unlike `named_modules` this survives modules whose constructor never reached `super().__init__()`.
    """
    seen: set[int] = set()
    waiting: list[tuple[str, nn.Module]] = [("", module)]
    while waiting:
        path, current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield path, current
        children = vars(current).get("_modules") or {}
        for name, child in reversed(children.items()):
            if isinstance(child, nn.Module):
                waiting.append((f"{path}.{name}" if path else name, child))
