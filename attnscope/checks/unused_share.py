"""A part of a projection that nothing uses: two of queries, keys and values are one and the same part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from attnscope.checks.lab import Lab
from attnscope.checks.maps import Map
from attnscope.checks.roles import projections

_LEAST = 0.02  # a share of rows that is smaller is no head's


@dataclass(frozen=True)
class Idle:
    """Of one attention, `names` are two of queries, keys and values that are the same numbers; `share` is the
    share of `parameter`, which they are made with, that has no effect."""

    one: Map
    names: tuple[str, str]
    parameter: str
    share: float


def unused_shares(lab: Lab, zeros: Mapping[str, float]) -> Iterator[Idle]:
    """Each attention with two equal sides whose projection has rows that get a gradient of exactly zero."""
    for one in lab.all_maps:
        names = _equal_sides(one)
        if names is None:
            continue
        found = [(zeros[name], name) for name in projections(lab, one) if zeros.get(name, 0.0) >= _LEAST]
        if found:
            share, parameter = max(found)
            yield Idle(one, names, parameter, share)


def _equal_sides(one: Map) -> tuple[str, str] | None:
    """Two of queries, keys and values that hold the same numbers, but for a scale."""
    held = {name: one.found.tensors.get(name) for name in ("q", "k", "v")}
    words = {"q": "queries", "k": "keys", "v": "values"}
    for left, right in combinations(held, 2):
        a, b = held[left], held[right]
        if a is not None and b is not None and _equal(a, b):
            return words[left], words[right]
    return None


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one another's multiple, the one turned round perhaps."""
    for other in (b, b.mT if b.dim() > 1 else b):
        if a.shape != other.shape or not a.numel():
            continue
        left, right = a.double(), other.double()
        size = float(right.norm())
        if size and torch.allclose(left, right * (float(left.norm()) / size), rtol=1e-6, atol=1e-9):
            return True
    return False
