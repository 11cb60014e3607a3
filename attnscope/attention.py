"""From what the capture kept to `Attention`: [B, H, T, S], the mask, and where the mask came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnscope.axes.dims import Dim, Dims
from attnscope.recorder.found import Found
from attnscope.recorder.record import Recording
from attnscope.recorder.tensors import refs_in
from attnscope.schema import Attention, MaskOrigin, Pooled
from attnscope.source import span_of
from attnscope.steps import Steps


def build_attention(recording: Recording, steps: Steps | None = None) -> list[Attention]:
    """Each attention that was found in the run, in order. Pass `steps` to number the rows like it does."""
    if recording.capture is None:
        return []
    steps = steps or Steps(recording)
    return [_one(recording, steps, found) for found in recording.capture.found]


def _one(recording: Recording, steps: Steps, found: Found) -> Attention:
    shape, order, batch = _layout(recording, steps, found)
    arrange = _Arrange(shape, order, batch)
    note = found.note
    mask, differs = None, False
    if found.allowed is not None and found.allowed.size == int(np.prod(found.shape)):
        mask, differs = _shared(arrange(found.allowed))
    if differs:
        note = f"{note}; " if note else ""
        note += "the mask differs between heads: a cell is allowed where any head may attend"
    return Attention(
        module=steps.owner(found.call),
        source=found.source,
        step=_row(recording, steps, found.event),
        heads=arrange.shape[1],
        shape=arrange.shape,
        mask=mask,
        mask_origin=_origin(recording, found),
        weights=arrange(found.weights) if found.weights is not None else None,
        pooled=arrange.pooled(found.pooled),
        scores=arrange(found.scores) if _fits(found) else None,
        note=note,
    )


def _row(recording: Recording, steps: Steps, index: int) -> int | None:
    """The row of an event; for one inside a function of PyTorch's, the row of the call of that function."""
    events = recording.events
    while index < len(events) and index not in steps.of_event and events[index].depth:
        index += 1
    return steps.of_event.get(index)


def _fits(found: Found) -> bool:
    return found.scores is not None and found.scores.size == int(np.prod(found.shape))


def arranger(recording: Recording, steps: Steps, found: Found) -> Callable[[Any], Any]:
    """The function that brings an array in the layout of an attention's source to [B, H, T, S]."""
    return _Arrange(*_layout(recording, steps, found))


class _Arrange:
    """Brings an array in the source's layout to [B, H, T, S]."""

    def __init__(self, shape: tuple[int, ...], order: list[int] | None, batch: int) -> None:
        self._order = order
        self._sizes = shape
        sizes = [shape[place] for place in order] if order is not None else list(shape)
        keys = sizes[-1] if sizes else 1
        queries = sizes[-2] if len(sizes) > 1 else 1
        leading = int(np.prod(sizes[:-2], dtype=np.int64)) if len(sizes) > 2 else 1
        batch = batch if batch and leading % batch == 0 else 1
        self.shape: tuple[int, int, int, int] = (batch, leading // batch, queries, keys)

    def __call__(self, array: Any) -> Any:
        if self._order is not None:
            array = np.transpose(array.reshape(self._sizes), self._order)
        return array.reshape(self.shape)

    def pooled(self, pooled: Pooled | None) -> Pooled | None:
        """What was pooled as [1, B·H, …] when no axis had a name yet, as [B, H, …]."""
        if pooled is None or pooled.weights.shape[:2] == self.shape[:2]:
            return pooled
        return replace(
            pooled,
            weights=self._lead(pooled.weights),
            top_keys=self._lead(pooled.top_keys),
            top_weights=self._lead(pooled.top_weights),
        )

    def _lead(self, array: Any) -> Any:
        tail = array.shape[2:]
        lead = len(self._sizes) - 2
        if self._order is not None and sorted(self._order[:lead]) == list(range(lead)):
            array = array.reshape(*self._sizes[:lead], *tail)
            array = np.transpose(array, [*self._order[:lead], *range(lead, lead + len(tail))])
        return array.reshape(*self.shape[:2], *tail)


def _layout(
    recording: Recording, steps: Steps, found: Found
) -> tuple[tuple[int, ...], list[int] | None, int]:
    """The shape of the weights, the order of axes that ends in queries and keys, and the batch size."""
    shape = found.shape
    dims: Dims = steps.axes.of.get(found.serial, ())
    if found.source != "softmax" or len(dims) != len(shape):
        return shape, None, _batch(found, shape, [None] * len(shape))
    # An axis that was folded from others (B·H, H·B) is taken apart again.
    parts = [
        (dim.label, size) for whole, n in zip(dims, shape, strict=True) for dim, size in _unfolded(whole, n)
    ]
    names = [name for name, _ in parts]
    shape = tuple(size for _, size in parts)
    order = None
    if "T" in names and "S" in names and len(shape) >= 3:
        rest = [i for i, name in enumerate(names) if name not in ("T", "S")]
        rest.sort(key=lambda i: (names[i] != "B", i))
        order = [*rest, names.index("T"), names.index("S")]
        if order == list(range(len(shape))):
            order = None
    return shape, order, _batch(found, shape, names)


def _unfolded(dim: Dim, size: int) -> list[tuple[Dim, int]]:
    factors = [factor.root() for factor in dim.root().factors or ()]
    if {"B"} < {factor.label for factor in factors} <= {"B", "H", "G"}:
        return [(factor, factor.size) for factor in factors]
    return [(dim, size)]


def _batch(found: Found, shape: tuple[int, ...], names: Sequence[str | None]) -> int:
    if found.heads:
        leading = int(np.prod(shape[:-2], dtype=np.int64))
        return leading // found.heads if leading % found.heads == 0 else 1
    if "B" in names:
        return int(shape[names.index("B")])
    if len(shape) == 3 and names[0] in ("H", "G"):
        return 1
    return int(shape[0]) if len(shape) >= 3 else 1


def _shared(mask: Any) -> tuple[Any, bool]:
    """[B, H, T, S] → [B or 1, T, S], and whether heads differ."""
    first = mask[:, :1]
    differs = not bool((mask == first).all())
    joined = mask.any(axis=1) if differs else mask[:, 0]
    if joined.shape[0] > 1 and bool((joined == joined[:1]).all()):
        joined = joined[:1]
    return joined, differs


# -- where a mask came from ----------------------------------------------------------------------------------


def _origin(recording: Recording, found: Found) -> MaskOrigin:
    if found.is_causal:
        event = recording.events[found.event]
        span = span_of(event.code, event.lasti) if event.code is not None else None
        return MaskOrigin("is_causal", None, span.file if span else None, span.line if span else None)
    if found.mask_serial is None:
        return MaskOrigin("none")
    return origin_of(recording, found.mask_serial)


def origin_of(recording: Recording, serial: int) -> MaskOrigin:
    """Walk back from a tensor to the buffer, argument or line that it was made from."""
    producers = {out: event for event in recording.events for out in event.outputs}
    arguments = {made: name for name, made in recording.arguments}
    made_at = None
    current = serial
    square = _wide(recording, serial)[-2:]
    for _ in range(len(recording.events) + 1):
        if current in arguments:
            return _named("argument", arguments[current], made_at)
        event = producers.get(current)
        if event is None:
            kind, name = recording.owned.get(recording.leaves.get(current, -1), ("made", None))
            return _named(kind, name, made_at)
        # Before it has its queries and keys a mask is none yet: an `arange`, lengths, a comparison's sides.
        if event.code is not None and event.direct and _wide(recording, current)[-len(square) :] == square:
            made_at = span_of(event.code, event.lasti)
        refs = [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]
        if not refs:
            break
        if event.op.name.endswith("_like") or event.op.name.startswith("new_"):
            break
        current = refs[0]
    return _named("made", None, made_at)


def _wide(recording: Recording, serial: int) -> tuple[int, ...]:
    """The sizes of a tensor that are not 1."""
    return tuple(size for size in recording.made[serial][0] if size != 1)


def _named(kind: Any, name: str | None, span: Any) -> MaskOrigin:
    return MaskOrigin(
        kind, name, span.file if span is not None else None, span.line if span is not None else None
    )
