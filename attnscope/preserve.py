"""A run leaves no mark: module, buffers, inputs, random numbers and global modes come back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from attnscope.tensors import storage_of

_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class Guard:
    """Copies a watched tensor the first time that something is about to write into its memory."""

    def __init__(self, watched: Iterable[Tensor]) -> None:
        self._watched = list(watched)
        self._by_storage: dict[int, list[Tensor]] | None = None
        self._saved: list[tuple[Tensor, Tensor]] = []
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
        """Keep the values of `tensor` as they are now."""
        self._saved.append((tensor, tensor.detach().clone()))

    def restore(self) -> None:
        """Write the kept values back."""
        for tensor, values in self._saved:
            with torch.no_grad():
                tensor.data.copy_(values)


@contextmanager
def preserved(module: nn.Module, inputs: Iterable[Tensor] = ()) -> Iterator[Guard]:
    """Everything inside may change the module, its inputs, RNG and global modes; none of it lasts.

    Buffers, parameters and inputs are copied only when a write into them is announced to the guard, since
    a causal mask for a long context is large. PyTorch's batch norms write out of sight, into small buffers:
    those are copied at once.
    """
    watched = [*inputs]
    tables = []
    norms = []
    for _, child in walk(module):
        state = vars(child)
        if isinstance(child, _NormBase):
            if child.training:
                norms.append(child)
        elif type(child).__module__.startswith("torch.nn.modules"):
            continue  # the other layers of PyTorch's keep no state of a call
        copies = {name: state[name].copy() for name in _TABLES if name in state}
        tables.append((state, state.copy(), copies))
        for name in ("_buffers", "_parameters"):
            watched += [value for value in state.get(name, {}).values() if isinstance(value, Tensor)]
        watched += [value for value in state.values() if isinstance(value, Tensor)]
    guard = Guard(watched)
    for norm in norms:
        for buffer in norm.buffers(recurse=False):
            guard.save(buffer)
    with global_state():
        try:
            yield guard
        finally:
            guard.restore()
            for state, before, copies in tables:
                _put_back(state, before, copies)


def _put_back(state: dict[str, Any], before: dict[str, Any], copies: dict[str, Any]) -> None:
    if state.keys() != before.keys() or any(state[name] is not before[name] for name in before):
        state.clear()
        state.update(before)
    for name, table in copies.items():
        current = state[name]
        if current != table if isinstance(table, set) else not _same(current, table):
            current.clear()
            current.update(table)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


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


@contextmanager
def global_state() -> Iterator[None]:
    """Random number generators (torch, CUDA, numpy, random), grad mode and default dtype come back."""
    torch_state = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    numpy: Any = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    python_state = random.getstate()
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy_state is not None:
            numpy.random.set_state(numpy_state)
        random.setstate(python_state)
        torch.set_grad_enabled(grad)
        if torch.get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)
