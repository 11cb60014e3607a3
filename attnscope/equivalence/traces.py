"""Two traces side by side: which steps hold the same numbers, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnscope.comparison import Pair, Parting
from attnscope.equivalence.calls import Calls
from attnscope.folding import fold_layers
from attnscope.loader.importing import run_user_code
from attnscope.recorder.record import Recording, record
from attnscope.recorder.tensors import refs_in
from attnscope.schema import ModelInfo, Step, Trace
from attnscope.steps import Steps

MOST_ROWS = 500
_CLOSE = 1e-5


@dataclass
class Walk:
    """One recorded call: its rows, the rows that each row reads from, and which depend on the input."""

    recording: Recording
    rows: list[Step]
    reads: list[set[int]]
    fed: list[bool]
    last: int | None = None
    arrays: list[list[NDArray[Any]]] = field(default_factory=list)

    def trace(self, model: ModelInfo) -> Trace:
        """What the renderers take."""
        return Trace(model, (), None, tuple(self.rows), ())


def walk(calls: Calls, module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Walk:
    """Record one call with the values of every step."""
    axes = dict(calls.inputs.axes)

    def run() -> Recording:
        torch.default_generator.manual_seed(1)
        with torch.no_grad():
            return record(module, args, kwargs, values=True, input_axes=axes)

    recording = run_user_code(calls.side.environment, run)
    steps = Steps(recording)
    made_by: dict[int, set[int]] = {}
    fed_serials = {serial for _, serial in recording.arguments}
    reads: list[set[int]] = [set() for _ in steps.rows]
    fed = [False] * len(steps.rows)
    for index, event in enumerate(recording.events):
        refs = [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]
        row = steps.of_event.get(index)
        sources = set().union(*(made_by.get(ref, set()) for ref in refs))
        if row is not None:
            reads[row] |= sources - {row}
            fed[row] = fed[row] or any(ref in fed_serials for ref in refs)
        for serial in event.outputs:
            made_by[serial] = {row} if row is not None else sources
            if any(ref in fed_serials for ref in refs):
                fed_serials.add(serial)
    last = None
    if recording.result_serial is not None:
        last = max(made_by.get(recording.result_serial, set()), default=None)
    found = Walk(recording, steps.rows, reads, fed, last)
    found.arrays = [_arrays(step) for step in steps.rows]
    return found


def _arrays(step: Step) -> list[NDArray[Any]]:
    """The numbers of a row, sorted: whole outputs first, then the heads of an output that has a head axis."""
    found: list[NDArray[Any]] = []
    slices: list[NDArray[Any]] = []
    for info, values in zip(step.outputs, step.values or (), strict=False):
        if values is None or values.dtype.kind not in "fiub" or values.size < 2:
            continue
        found.append(_sorted(values))
        if "H" in info.axes and 1 < info.shape[info.axes.index("H")] <= 32:
            axis = info.axes.index("H")
            slices += [_sorted(values.take(head, axis)) for head in range(info.shape[axis])]
    return found + slices


def _sorted(values: NDArray[Any]) -> NDArray[Any]:
    flat = np.sort(values.astype(np.float64), axis=None)
    return np.clip(flat, -1e30, 1e30)


def _same(one: NDArray[Any], two: NDArray[Any]) -> bool:
    return one.shape == two.shape and bool(np.allclose(one, two, rtol=_CLOSE, atol=_CLOSE, equal_nan=True))


def _match(a: list[NDArray[Any]], b: list[NDArray[Any]]) -> bool:
    return any(_same(x, y) for x in a for y in b)


@dataclass
class Matching:
    """Pairs for display, and for each row whether its numbers are found on the other side."""

    pairs: tuple[Pair, ...]
    found: tuple[list[bool], list[bool]]


def match(a: Walk, b: Walk) -> Matching:
    """Align the rows of two walks by their numbers, in order. Repeated layers and heads are left out."""
    n, m = min(len(a.rows), MOST_ROWS), min(len(b.rows), MOST_ROWS)
    shown = _shown(a, n), _shown(b, m)
    same = np.zeros((n, m), dtype=np.int64)
    for i in range(n):
        for j in range(m):
            if a.arrays[i] and b.arrays[j] and a.fed[i] == b.fed[j] and _match(a.arrays[i], b.arrays[j]):
                same[i, j] = 4 + (a.rows[i].op == b.rows[j].op) + _shape_bonus(a.rows[i], b.rows[j])
    found = ([bool(same[i].any()) for i in range(n)], [bool(same[:, j].any()) for j in range(m)])
    same[[not shown[0][i] for i in range(n)], :] = 0
    same[:, [not shown[1][j] for j in range(m)]] = 0
    best = np.zeros((n + 1, m + 1), dtype=np.int64)
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            here = best[i + 1, j + 1] + same[i, j] if same[i, j] else 0
            best[i, j] = max(best[i + 1, j], best[i, j + 1], here)
    pairs: list[Pair] = []
    i = j = 0
    left: list[int] = []
    right: list[int] = []

    def flush() -> None:
        for k in range(max(len(left), len(right))):
            x = left[k] if k < len(left) else None
            y = right[k] if k < len(right) else None
            pairs.append(Pair(x, y, False))
        left.clear()
        right.clear()

    while i < n or j < m:
        if i < n and j < m and same[i, j] and best[i, j] == best[i + 1, j + 1] + same[i, j]:
            flush()
            pairs.append(Pair(i, j, True))
            i, j = i + 1, j + 1
        elif j >= m or (i < n and best[i + 1, j] >= best[i, j + 1]):
            left += [i] if shown[0][i] else []
            i += 1
        else:
            right += [j] if shown[1][j] else []
            j += 1
    flush()
    return Matching(tuple(pairs), found)


def _shown(walk: Walk, count: int) -> list[bool]:
    """Which rows stand for themselves: those of equal layers and heads after the first do not."""
    kept = {item.index for item in fold_layers(walk.rows) if isinstance(item, Step)}
    return [walk.rows[i].index in kept or walk.rows[i].error is not None for i in range(count)]


def _shape_bonus(one: Step, two: Step) -> int:
    shapes = [step.outputs[0].shape if step.outputs else None for step in (one, two)]
    return 1 if shapes[0] == shapes[1] else 0


def part(a: Walk, b: Walk, matching: Matching) -> Parting | None:
    """Where numbers that both have turn into numbers that only one has, on the way to the output."""
    i, j = _first_bad(a, matching.found[0]), _first_bad(b, matching.found[1])
    if i is None and j is None:
        return None
    note = ""
    moved = _rearranged(a, b, matching, i, j)
    if moved is not None:
        i, j, note = moved
    return Parting(i, j, _heads(a, b, i, j), note)


def _first_bad(walk: Walk, found: list[bool]) -> int | None:
    failed = next((k for k, step in enumerate(walk.rows) if step.error is not None), None)
    if failed is not None:
        return failed
    if walk.last is None:
        return None
    bad: set[int] = set()
    waiting = [walk.last]
    while waiting:
        row = waiting.pop()
        if row in bad or row >= len(found) or found[row] or not walk.fed[row]:
            continue
        bad.add(row)
        waiting += walk.reads[row]
    return min(bad, default=None)


def _rearranged(
    a: Walk, b: Walk, matching: Matching, i: int | None, j: int | None
) -> tuple[int, int, str] | None:
    """An earlier pair with the same numbers in another order: the view or transposition that mixes them."""
    for pair in matching.pairs:
        if pair.a is None or pair.b is None or not pair.same:
            continue
        if i is not None and pair.a >= i and j is not None and pair.b >= j:
            return None
        one, two = a.rows[pair.a], b.rows[pair.b]
        x, y = (step.values[0] if step.values else None for step in (one, two))
        if x is None or y is None or x.shape != y.shape or not a.fed[pair.a]:
            continue
        if not np.allclose(x, y, rtol=_CLOSE, atol=_CLOSE, equal_nan=True):
            return pair.a, pair.b, "the same numbers in another order"
    return None


def _heads(a: Walk, b: Walk, i: int | None, j: int | None) -> tuple[int, ...]:
    if i is None or j is None:
        return ()
    one, two = a.rows[i], b.rows[j]
    if not one.outputs or not two.outputs or not one.values or not two.values:
        return ()
    info, other = one.outputs[0], two.outputs[0]
    if info.shape != other.shape or "H" not in info.axes or info.axes != other.axes:
        return ()
    axis = info.axes.index("H")
    x, y = one.values[0], two.values[0]
    if x is None or y is None:
        return ()
    return tuple(
        head
        for head in range(info.shape[axis])
        if not np.allclose(x.take(head, axis), y.take(head, axis), rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
    )
