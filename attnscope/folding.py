"""A stack of equal layers takes equal steps: say so in one line in place of N tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnscope.schema import Step, TensorInfo


@dataclass(frozen=True, slots=True)
class Same:
    """The modules at `paths` took the same `steps` steps each as the one at `like`.

    What their parent did between them, which was the same too, is not counted.
    """

    like: str
    paths: tuple[str, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """The steps of entry `index` of a container, and those around it up to the next entry."""

    index: str
    run: Sequence[Step]
    glue: Sequence[Step]


def fold_layers(steps: Sequence[Step]) -> tuple[Step | Same, ...]:
    """The steps with those of repeated layers (`blocks.0`, `blocks.1`, ...) replaced by a `Same` each.

    Two layers are the same when module (below the layer), operation, detail, variable, line, shapes, axes,
    memory and contiguity agree step by step. A step that raised is equal to none. Layers in layers fold too.
    """
    return tuple(_fold(list(steps), 0))


def last_rows(steps: Sequence[Step], rows: int) -> Sequence[Step]:
    """The longest tail of the steps that, with equal layers folded, has at most so many rows."""
    if len(fold_layers(steps)) <= rows:
        return steps
    low, high = 0, len(steps) - rows
    while low < high:  # folding makes this nearly monotonous; a row too many or too few does no harm
        middle = (low + high) // 2
        if len(fold_layers(steps[middle:])) <= rows:
            high = middle
        else:
            low = middle + 1
    return steps[high:]


def _fold(steps: Sequence[Step], level: int) -> list[Step | Same]:
    out: list[Step | Same] = []
    position = 0
    while position < len(steps):
        found = _container(steps[position], level)
        if found is None:
            out.append(steps[position])
            position += 1
            continue
        container, _ = found
        units, position = _units(steps, position, container)
        out += _fold_units(units, container)
    return out


def _container(step: Step, level: int) -> tuple[tuple[str, ...], str] | None:
    """The list that the step's module stands in (`("blocks",)`) and its place there (`"3"`)."""
    parts = step.module.split(".")
    for place in range(level, len(parts)):
        if parts[place].isdigit():
            return tuple(parts[:place]), parts[place]
    return None


def _units(steps: Sequence[Step], start: int, container: tuple[str, ...]) -> tuple[list[_Unit], int]:
    depth = len(container)
    runs: list[tuple[str, int, int]] = []
    position = start
    while position < len(steps):
        parts = steps[position].module.split(".")
        if tuple(parts[:depth]) == container and len(parts) > depth and parts[depth].isdigit():
            if runs and runs[-1][0] == parts[depth] and runs[-1][2] == position:
                runs[-1] = (parts[depth], runs[-1][1], position + 1)
            else:
                runs.append((parts[depth], position, position + 1))
        position += 1
    units = []
    for number, (index, begin, end) in enumerate(runs):
        stop = runs[number + 1][1] if number + 1 < len(runs) else len(steps)
        units.append(_Unit(index, steps[begin:end], steps[end:stop]))
    # Behind the last layer, only as much belongs to it as stood behind one that it equals.
    last = units[-1]
    kept = 0
    for unit in units[:-1]:
        if _equal(unit, last, depth, glue=False):
            kept = max(kept, _common(unit, last, depth))
    units[-1] = _Unit(last.index, last.run, last.glue[:kept])
    return units, runs[-1][2] + kept


def _fold_units(units: Sequence[_Unit], container: tuple[str, ...]) -> list[Step | Same]:
    depth = len(container)
    out: list[Step | Same] = []
    originals: list[_Unit] = []
    pending: list[tuple[_Unit, list[str]]] = []

    def flush() -> None:
        for like, indices in pending:
            paths = tuple(dict.fromkeys(".".join((*container, index)) for index in indices))
            out.append(Same(".".join((*container, like.index)), paths, len(like.run)))
        pending.clear()

    for number, unit in enumerate(units):
        is_last = number == len(units) - 1
        like = next((other for other in originals if _equal(other, unit, depth, glue=not is_last)), None)
        if like is None:
            flush()
            originals.append(unit)
            out += _fold(unit.run, depth + 1)
            out += _fold(unit.glue, depth) if unit.glue else []
            continue
        for known, indices in pending:
            if known is like:
                indices.append(unit.index)
                break
        else:
            pending.append((like, [unit.index]))
    flush()
    return out


def _equal(one: _Unit, two: _Unit, depth: int, glue: bool) -> bool:
    if len(one.run) != len(two.run) or (glue and len(one.glue) != len(two.glue)):
        return False
    pairs = list(zip(one.run, two.run, strict=True))
    if glue:
        pairs += list(zip(one.glue, two.glue, strict=True))
    bases = one.run[0].index, two.run[0].index
    return all(_same_step(a, b, bases, depth) for a, b in pairs)


def _common(one: _Unit, two: _Unit, depth: int) -> int:
    bases = one.run[0].index, two.run[0].index
    number = 0
    for a, b in zip(one.glue, two.glue, strict=False):
        if not _same_step(a, b, bases, depth):
            break
        number += 1
    return number


def _same_step(a: Step, b: Step, bases: tuple[int, int], depth: int) -> bool:
    return _key(a, bases[0], depth) == _key(b, bases[1], depth) and a.error is None and b.error is None


def _key(step: Step, base: int, depth: int) -> tuple[object, ...]:
    parts = step.module.split(".")
    below = tuple(parts[depth + 1 :]) if len(parts) > depth and parts[depth].isdigit() else tuple(parts)
    since = step.noncontiguous_since
    return (
        below,
        step.op,
        step.detail,
        step.variable,
        step.span,
        tuple(map(_shape, step.inputs)),
        tuple(map(_shape, step.outputs)),
        step.memory,
        None if since is None else since - base,
        step.inner,
    )


def _shape(info: TensorInfo) -> tuple[object, ...]:
    return info.shape, info.axes, info.dtype, info.contiguous
