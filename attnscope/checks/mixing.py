"""A view that cuts memory anew: tokens, heads, channels or batch entries that end up in one axis.

Axis names flow with the data; where a reshape cannot keep them apart it says so. What it did to the tokens is
then proved by sending numbered tokens through the very same sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnscope.axes.dims import Dims, regroup
from attnscope.checks.lab import Lab
from attnscope.ops.catalog import CUTS, NORMS, PRODUCTS, SOURCES, plain
from attnscope.recorder.tensors import Ref

_INNER = ("C", "H", "D", "G")


@dataclass(frozen=True)
class Mixing:
    """`event` is the step; `before` and `after` are its shapes, `names` the input's axis names.

    `tokens`, `entries` and `heads` say what is mixed up. `rows` are (index of the result, the `what` that it
    holds), a few of them, as proof.
    """

    event: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    names: tuple[str | None, ...]
    tokens: bool
    entries: bool
    heads: bool
    rows: tuple[tuple[str, str], ...]
    what: str = "token"

    @property
    def inside(self) -> bool:
        """Whether heads stood on an axis already before the step."""
        return any(part in ("H", "G") for name in self.names for part in (name or "").split("·"))


def mixing_of(lab: Lab) -> Mixing | None:
    """The first step that mixes tokens or entries with each other across heads or channels."""
    return lab.once(_find)


def _find(lab: Lab) -> Mixing | None:
    if lab.recording.error is not None:
        return None
    scores = _scores(lab)
    for index, event in enumerate(lab.recording.events):
        name = event.op.name
        if name not in CUTS or not event.args or type(event.args[0]) is not Ref or not event.outputs:
            continue
        if event.args[0] not in lab.lineage.active or event.depth:
            continue
        before, after = lab.lineage.shape(int(event.args[0])), lab.lineage.shape(event.outputs[0])
        dims = lab.steps.axes.of.get(int(event.args[0]), ())
        out = lab.steps.axes.of.get(event.outputs[0], ())
        if len(dims) != len(before) or any(dim.root().mixed for dim in dims):
            continue
        names = tuple(dim.label for dim in dims)
        if "S" in names or int(event.args[0]) in scores:
            continue  # positions are shifted into place by such views: of scores, not of tokens
        mixed = _labels_of_mixed(dims, out, before, after)
        tokens = "T" in mixed and bool(mixed & {*_INNER, "?"})
        entries = "B" in mixed and len(mixed) > 1
        if tokens or entries:
            axis = names.index("T") if tokens and "T" in names else None
            if axis is None and "B" in names:
                axis = names.index("B")
            rows = _rows(before, after, axis) if axis is not None else ()
            what = "token" if axis is not None and names[axis] == "T" else "batch entry"
            return Mixing(index, before, after, names, tokens, entries, bool(mixed & {"H", "G"}), rows, what)
    return None


def _scores(lab: Lab) -> set[int]:
    """Everything between a product of queries and keys, or of positions, and its softmax."""
    found: set[int] = set()
    after: set[int] = set()
    for one in lab.maps:
        if one.found.source == "softmax":
            after |= lab.lineage.offspring(one.found.event)
            for product in _last_products(lab, one.found.input_serial):
                found |= lab.lineage.offspring(product)
    return found - after


def _last_products(lab: Lab, serial: int) -> list[int]:
    """Products that a softmax input is the sum of: of queries with keys, or with embeddings of distances."""
    seen: set[int] = set()
    found: list[int] = []
    waiting = [serial]
    while waiting:
        index = lab.lineage.producer.get(waiting.pop())
        if index is None or index in seen:
            continue
        seen.add(index)
        event = lab.recording.events[index]
        name = plain(event.op.name)
        if name in PRODUCTS:
            found.append(index)
        elif name not in SOURCES and name not in NORMS:
            waiting += [ref for ref in lab.lineage.refs(event) if ref in lab.lineage.active]
    return found


def _labels_of_mixed(dims: Dims, out: Dims, before: tuple[int, ...], after: tuple[int, ...]) -> set[str]:
    """The names of what a reshape mixed: the axes of each group whose results belong to no axis any more."""
    mixed: set[str] = set()
    for left, right in regroup(before, after) or ():
        if not any(out[j].root().mixed for j in right):
            continue
        for i in left:
            for part in (dims[i].label or "?").split("·"):
                if part and before[i] > 1:
                    mixed.add("C" if part.endswith("C") else part.partition("/")[0])
    return mixed


def _rows(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> tuple[tuple[str, str], ...]:
    """What the rows of the result hold of one axis of the input, found by sending its numbers through."""
    shape = [1] * len(before)
    shape[axis] = before[axis]
    numbered = np.broadcast_to(np.arange(before[axis]).reshape(shape), before).reshape(after)
    varied = [i for i in range(numbered.ndim) if _varies(numbered, i)]
    if not varied:
        return ()
    # The axis that stands where the tokens stood, or should, is the one that a reader looks at.
    place = next((i for i in varied if after[i] == before[axis]), varied[0])
    rows = []
    for row in range(min(after[place], 6)):
        inside = np.unique(np.take(numbered, row, axis=place))
        rows.append((f"{row} of axis {place}", ", ".join(str(int(x)) for x in inside[:10])))
    return tuple(rows)


def _varies(array: Any, axis: int) -> bool:
    return array.shape[axis] > 1 and bool((np.take(array, [0], axis=axis) != array).any())
