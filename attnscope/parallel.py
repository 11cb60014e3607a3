"""Heads that are modules of their own, side by side, shown as the heads of one attention.

A stack of single heads in a `ModuleList` gives one attention for each head. They belong together where one
caller gave all of them the same input; layers that follow one another never do, for each is given what the
one before it made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnscope.recorder.record import Recording
from attnscope.schema import Attention, Pooled


def join_parallel(recording: Recording, attention: Sequence[Attention]) -> list[Attention]:
    """The attentions in order; neighbours `X.0`, `X.1`, … that run in parallel become heads of `X`."""
    found = recording.capture.found if recording.capture is not None else []
    joined: list[Attention] = []
    group: list[Attention] = []
    key: Any = None
    for one, seen in zip(attention, found, strict=True):
        next_key = _key(recording, one, seen.call)
        if group and (next_key is None or next_key != key or not _fits(group[0], one)):
            joined.append(_join(group))
            group = []
        group.append(one)
        key = next_key
    if group:
        joined.append(_join(group))
    return joined


def _key(recording: Recording, one: Attention, call: int) -> Any:
    """What heads side by side have in common: the list they stand in, who called them, with what."""
    container, _, place = one.module.rpartition(".")
    if not place.isdigit():
        return None
    while call >= 0 and recording.path_of(call) != one.module:
        call = recording.calls[call][1]
    if call < 0:
        return None
    _, caller, inputs, named = recording.calls[call]
    return container, caller, inputs, tuple(sorted(named.items()))


def _fits(one: Attention, other: Attention) -> bool:
    if one.shape != other.shape or one.source != other.source or one.note != other.note:
        return False
    if (one.pooled is None) != (other.pooled is None) or (one.weights is None) != (other.weights is None):
        return False
    if (one.scores is None) != (other.scores is None):
        return False
    if one.mask is None or other.mask is None:
        return one.mask is other.mask
    return np.array_equal(one.mask, other.mask)


def _join(group: Sequence[Attention]) -> Attention:
    first = group[0]
    if len(group) == 1:
        return first
    batch, heads, queries, keys = first.shape
    return replace(
        first,
        module=first.module.rpartition(".")[0],
        heads=heads * len(group),
        shape=(batch, heads * len(group), queries, keys),
        weights=_heads([one.weights for one in group]),
        scores=_heads([one.scores for one in group]),
        pooled=_pooled([one.pooled for one in group]),
    )


def _heads(arrays: Sequence[Any]) -> Any:
    return None if arrays[0] is None else np.concatenate(arrays, axis=1)


def _pooled(parts: Sequence[Pooled | None]) -> Pooled | None:
    kept = [part for part in parts if part is not None]
    if not kept:
        return None
    return Pooled(
        _heads([part.weights for part in kept]),
        kept[0].factor,
        _heads([part.top_keys for part in kept]),
        _heads([part.top_weights for part in kept]),
    )
