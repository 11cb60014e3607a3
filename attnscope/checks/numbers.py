"""Where the first NaN or infinity of a run comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnscope.checks.lineage import Lineage
from attnscope.ops.catalog import ARITHMETIC, PRODUCTS, plain
from attnscope.recorder.record import Recording

_CAN_OVERFLOW = ARITHMETIC | PRODUCTS | {"pow", "exp"}


@dataclass(frozen=True)
class Origin:
    """`event` made the first NaN. `cause` is the earlier step that made the infinities it came from, if it
    did so
    out of finite numbers. `rows` are rows of a softmax without a single allowed key. `count` of `size` are
    NaN.
    """

    event: int
    cause: int | None
    rows: int
    count: int
    size: int


def first_nan(recording: Recording) -> Origin | None:
    """The first step of a run whose result holds a NaN that its inputs do not, in order of time."""
    lineage = Lineage(recording)
    for index, event in enumerate(recording.events):
        if event.values is None or event.op.name in ("empty", "empty_like", "new_empty"):
            continue
        for value in event.values:
            if value is None or value.dtype.kind != "f" or not np.isnan(value).any():
                continue
            if any(_has_nan(_held(lineage, ref)) for ref in lineage.refs(event)):
                continue
            rows = 0
            if event.op.name == "softmax":
                given = _held(lineage, lineage.refs(event)[0])
                rows = int(np.all(given == -np.inf, axis=-1).sum()) if given is not None else 0
            return Origin(
                index, _overflow(recording, lineage, index), rows, int(np.isnan(value).sum()), value.size
            )
    return None


def _overflow(recording: Recording, lineage: Lineage, nan: int) -> int | None:
    """The latest step before that made infinities out of finite numbers by arithmetic."""
    found = None
    ancestors = set()
    for ref in lineage.refs(recording.events[nan]):
        ancestors |= lineage.ancestors(ref)
    for index, event in enumerate(recording.events[:nan]):
        if plain(event.op.name) not in _CAN_OVERFLOW:
            continue
        if event.values is None or not any(out in ancestors for out in event.outputs):
            continue
        for value in event.values:
            if value is None or value.dtype.kind != "f" or not np.isinf(value).any():
                continue
            held = [_held(lineage, ref) for ref in lineage.refs(event)]
            numbers = [x for x in event.args if isinstance(x, float)]
            if all(h is None or np.isfinite(h).all() for h in held) and all(np.isfinite(x) for x in numbers):
                return index
    return found


def _held(lineage: Lineage, ref: int) -> Any:
    value = lineage.value(ref)
    return value if value is not None else lineage.leaf_value(ref)


def _has_nan(value: Any) -> bool:
    return value is not None and value.dtype.kind == "f" and bool(np.isnan(value).any())
