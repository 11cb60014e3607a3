"""Which line is to blame: back from the symptom to the step, or the constructor's statement, that made it."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from attnscope.checks.lab import Lab
from attnscope.checks.leaks import held
from attnscope.checks.maps import Map
from attnscope.checks.places import declared
from attnscope.checks.subject import parts
from attnscope.ops.catalog import CUTS, MOVES, PARTS, plain
from attnscope.recorder.tensors import Ref
from attnscope.schema import Span


def constructed(root: nn.Module, part: nn.Module) -> Span | None:
    """The statement of a user's class that makes `part` an attribute; for an item, that of its container."""
    paths = dict(parts(root))
    path = next((path for path, module in paths.items() if module is part and path), None)
    while path:
        above, _, name = path.rpartition(".")
        owner = paths.get(above)
        span = declared(owner, name) if owner is not None else None
        if span is not None:
            return span
        path = above
    return None


def mask_span(lab: Lab, one: Map) -> Span | None:
    """Where a mask first has the pattern that was applied: a step, or the statement of a buffer."""
    serial = one.found.mask_serial
    pattern = _pattern(held(lab, serial)) if serial is not None else None
    if pattern is None or serial is None:
        return None
    lineage = lab.lineage
    ancestors = lineage.ancestors(serial)
    for leaf in sorted(ancestors - set(lineage.producer)):
        kind, name = lab.recording.owned.get(lab.recording.leaves.get(leaf, -1), ("", None))
        if name and kind in ("buffer", "attribute", "parameter") and _same(pattern, held(lab, leaf)):
            return _attribute(lab, name)
    for index, event in enumerate(lineage.events):
        made = [out for out in event.outputs if out in ancestors]
        if event.code is not None and any(_same(pattern, lineage.value(out)) for out in made):
            return lab.span(index)
    return None


def _attribute(lab: Lab, name: str) -> Span | None:
    last = name.rpartition(".")[2]
    for _, part in parts(lab.subject.module):
        if last in vars(part) or last in (vars(part).get("_buffers") or {}):
            span = declared(part, last)
            if span is not None:
                return span
    return None


def _same(pattern: Any, values: Any) -> bool:
    """Whether a tensor, or its corner, tells the same places apart as the mask does."""
    if values is None:
        return False
    rows, columns = pattern.shape
    array = np.asarray(values)
    if array.ndim < 2 or array.shape[-2] < rows or array.shape[-1] < columns:
        return False
    other = _pattern(array[..., :rows, :columns])
    return other is not None and bool((other == pattern).all())


def _pattern(values: Any) -> Any:
    """[T, S] numbers that are equal where the values are: 0 for the first, 1 for the next that differs …"""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim < 2 or min(array.shape[-2:]) < 2:
        return None
    square = np.nan_to_num(array.reshape(-1, *array.shape[-2:])[0].astype(np.float64))
    _, first, labels = np.unique(square, return_index=True, return_inverse=True)
    if len(first) < 2:
        return None
    return np.argsort(np.argsort(first))[labels.reshape(-1)].reshape(square.shape)


def heads_cut(lab: Lab, serial: int) -> int | None:
    """The step that cut the axes which a tensor still has, in that order, up to plain moves of numbers."""
    return _back(lab, serial, CUTS, lambda before, after: len(after) > len(before))


def tokens_cut(lab: Lab, serial: int) -> int | None:
    """The step that took a part of the token axis, on the way back from a tensor that holds a part of it."""
    length = lab.length
    return _back(lab, serial, PARTS, lambda before, after: length in before and length not in after)


def _back(lab: Lab, serial: int, names: frozenset[str], fits: Any) -> int | None:
    lineage = lab.lineage
    for _ in range(len(lineage.events)):
        index = lineage.producer.get(serial)
        if index is None:
            return None
        event = lineage.events[index]
        source = next((int(a) for a in event.args if type(a) is Ref and int(a) in lineage.active), None)
        if source is None or plain(event.op.name) not in MOVES:
            return None
        if plain(event.op.name) in names and fits(lineage.shape(source), lineage.shape(serial)):
            return index
        serial = source
    return None
