"""Modules and parameters that a module holds where `nn.Module` does not look: lists, dicts, other objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attnscope.checks.subject import parts

_PRIVATE = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


@dataclass(frozen=True)
class Hidden:
    """`value` (a module, or a tensor that wants gradients) sits in attribute `name` of `owner`, inside a
    `kind`."""

    owner: nn.Module
    path: str
    name: str
    kind: str
    value: Any


def hidden(root: nn.Module) -> list[Hidden]:
    """What with parameters is held and not registered anywhere in `root`."""
    known = {id(part) for _, part in parts(root)}
    parameters = {id(p) for _, part in parts(root) for p in (vars(part).get("_parameters") or {}).values()}
    found: list[Hidden] = []
    for path, part in parts(root):
        for name, value in list(vars(part).items()):
            if name in _PRIVATE or (name.startswith("_") and name.endswith("_hooks")):
                continue
            kind = type(value).__name__
            for item in _inside(value):
                if isinstance(item, nn.Module):
                    if id(item) not in known and any(True for _ in item.parameters()):
                        found.append(Hidden(part, path, name, kind, item))
                elif id(item) not in parameters and item.requires_grad:
                    found.append(Hidden(part, path, name, kind, item))
    return found


def hidden_modules(root: nn.Module, everything: bool = False) -> list[nn.Module]:
    """Modules that are held out of sight, and their parts."""
    found: list[nn.Module] = []
    for _, part in parts(root):
        for name, value in list(vars(part).items()):
            if name in _PRIVATE:
                continue
            for item in _inside(value):
                if isinstance(item, nn.Module):
                    found += [inner for _, inner in parts(item)] if everything else [item]
    return found


def _inside(value: Any, depth: int = 0) -> Iterator[Any]:
    """Modules and tensors in an attribute, through lists, tuples, sets and dicts."""
    if isinstance(value, nn.Module | Tensor):
        yield value
    elif depth < 3 and type(value) in (list, tuple, set):
        for item in list(value)[:256]:
            yield from _inside(item, depth + 1)
    elif depth < 3 and isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        for item in list(value.values())[:256]:
            yield from _inside(item, depth + 1)
