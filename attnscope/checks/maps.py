"""The attention of one recorded run in one orientation: queries by keys, whatever the source's layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from attnscope.attention import arranger
from attnscope.checks.lineage import Lineage
from attnscope.ops.catalog import MATMULS
from attnscope.ops.einsum import DOTS, read
from attnscope.recorder.found import Found
from attnscope.recorder.record import Event
from attnscope.recorder.tensors import refs_in
from attnscope.steps import Steps

# A row whose largest score lies below this has nothing that it may attend to: the fill value is all there is.
NOTHING = -1000.0


@dataclass(frozen=True)
class Map:
    """One attention. Arrays are float64 or None where the layout could not be told.

    `applied` [N, Q, K] is what was multiplied with the values, its rows oriented by that product: K is the
    axis that the product sums over. `weights` [N, Q, K] is what the softmax gave, in the same orientation.
    `masked` [N, Q, K] is what the softmax was given. `four` brings an array of the weights' layout to
    [B, H, T, S]. `along_keys` says whether the softmax runs along K. `letters` are the names of Q and K.
    """

    number: int
    found: Found
    applied: Any
    weights: Any
    masked: Any
    four: Callable[[Any], Any]
    shape: tuple[int, int, int, int]
    letters: tuple[str | None, str | None]
    along_keys: bool | None
    key_axis: int | None

    @property
    def event(self) -> int:
        """The index of the softmax, or of the fused call."""
        return self.found.event

    @property
    def square(self) -> bool:
        """As many queries as keys."""
        return self.applied is not None and self.applied.shape[1] == self.applied.shape[2]

    def bhts(self, name: str) -> Any:
        """`weights`, `masked` or `scores` as [B, H, T, S], or None."""
        tensor = self.found.tensors.get(name)
        if tensor is None or tuple(tensor.shape) != tuple(self.found.shape):
            return None
        try:
            return self.four(_array(tensor))
        except ValueError:
            return None


def build_maps(lineage: Lineage, steps: Steps) -> list[Map]:
    """One `Map` for each attention that was found, in order."""
    capture = lineage.recording.capture
    found = capture.found if capture is not None else []
    return [_map(number, one, lineage, steps) for number, one in enumerate(found)]


def _map(number: int, found: Found, lineage: Lineage, steps: Steps) -> Map:
    applied, weights, masked = (found.tensors.get(n) for n in ("applied", "weights", "masked"))
    four = arranger(lineage.recording, steps, found)
    shape: tuple[int, int, int, int] = getattr(four, "shape", (1, 1, 1, 1))
    place = _orientation(found, lineage, steps)
    oriented: list[Any] = [None, None, None]
    along = None
    letters: tuple[str | None, str | None] = (None, None)
    key = None
    if place is not None and applied is not None and weights is not None:
        query, key = place
        oriented[0] = _turn(applied, query, key)
        same = tuple(weights.shape) == tuple(applied.shape)
        tail = weights.ndim >= 2 and tuple(weights.shape[-2:]) == tuple(applied.shape[-2:])
        if same or (tail and weights.numel() == applied.numel()):
            oriented[1] = _turn(weights, query, key)
            oriented[2] = _turn(masked, query, key) if masked is not None else None
            along = found.dim - weights.ndim == key
            if _turned(oriented):
                oriented[1:] = [None if a is None else a.swapaxes(-2, -1) for a in oriented[1:]]
                along = found.dim - weights.ndim == query
            dims = steps.axes.of.get(found.serial, ())
            if len(dims) == weights.ndim and found.source == "softmax":
                letters = (dims[query].label, dims[key].label)
    applied_, weights_, masked_ = oriented
    return Map(number, found, applied_, weights_, masked_, four, shape, letters, along, key)


def _turned(oriented: list[Any]) -> bool:
    """Whether queries and keys were exchanged between the softmax and the product: only then do both
    agree."""
    applied, weights = oriented[0], oriented[1]
    if applied.shape != weights.swapaxes(-2, -1).shape or np.allclose(
        applied, weights, atol=1e-6, equal_nan=True
    ):
        return False
    return bool(np.allclose(applied, weights.swapaxes(-2, -1), atol=1e-6, equal_nan=True))


def _array(tensor: Tensor) -> Any:
    value = tensor.detach()
    return value.double().cpu().numpy()


def _turn(tensor: Tensor, query: int, key: int) -> Any:
    """[…] → [N, Q, K]; axes are counted from the end."""
    value = _array(tensor)
    value = np.moveaxis(value, (query, key), (-2, -1))
    return value.reshape(-1, *value.shape[-2:])


def _orientation(found: Found, lineage: Lineage, steps: Steps) -> tuple[int, int] | None:
    """The query axis and the key axis of what was applied, from the end: the key axis is summed over."""
    if found.source == "sdpa" or found.used_by == found.event:
        return -2, -1
    if found.used_by is None or found.applied_serial is None:
        return None
    event = lineage.events[found.used_by]
    name = event.op.name
    if name == "einsum":
        return _einsum(event, found, lineage, steps)
    if name in MATMULS:
        refs = [int(arg) for arg in refs_in(event.args)]
        if not refs or found.applied_serial not in refs:
            return None
        left = refs.index(found.applied_serial) == len(refs) - 2
        return (-2, -1) if left else (-1, -2)
    return None


def _einsum(event: Event, found: Found, lineage: Lineage, steps: Steps) -> tuple[int, int] | None:
    """The axis that is summed over; of those that the values lack, as heads that share them do, the one that
    holds tokens."""
    equation = read(event.args[0]) if event.args else None
    refs = list(refs_in(event.args))
    if equation is None or len(equation.inputs) != 2 or len(refs) != 2 or found.applied_serial not in refs:
        return None
    mine = equation.inputs[refs.index(found.applied_serial)].replace(DOTS, "")
    other = equation.inputs[1 - refs.index(found.applied_serial)]
    keys = [letter for letter in mine if letter in equation.summed]
    queries = [letter for letter in mine if letter in equation.output and letter not in other]
    if len(keys) > 1 and len(queries) > 1:
        return None
    if len(queries) > 1:
        dims = steps.axes.of.get(found.applied_serial, ())
        named = dict(zip(mine, (dim.label for dim in dims), strict=False)) if len(dims) == len(mine) else {}
        queries = [letter for letter in queries if named.get(letter) in ("T", "S")] or queries[-1:]
    if len(keys) != 1 or len(queries) != 1:
        return None
    return mine.index(queries[0]) - len(mine), mine.index(keys[0]) - len(mine)
