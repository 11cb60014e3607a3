"""What arguments of a call are for, by where they flow: into queries, keys, values, or onto scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attnscope.ops.catalog import SOURCES, plain
from attnscope.sandbox.state import seeded

if TYPE_CHECKING:
    from attnscope.checks.lab import Lab
    from attnscope.checks.maps import Map


def serial_of(lab: Lab, name: str) -> int | None:
    """The serial of an argument in the recorded run."""
    return next((serial for argument, serial in lab.recording.arguments if argument == name), None)


def together(lab: Lab) -> tuple[str, ...]:
    """Arguments that hold the same tokens as the main one and are changed with it: those that equal it, and
    those that give the keys alone and the values alone where it gives the queries alone."""
    main = lab.main
    if main is None:
        return ()
    arguments = lab.exact.arguments
    alike = []
    names = []
    for name, value in arguments.items():
        if not isinstance(value, Tensor) or value.dtype != lab.tensor.dtype:
            continue
        if value.shape != lab.tensor.shape:
            continue
        if value is lab.tensor or torch.equal(value, lab.tensor):
            names.append(name)
        elif lab.exact.axes.get(name) == lab.exact.axes[main]:
            alike.append(name)
    if len(alike) == 2 and not torch.equal(arguments[alike[0]], arguments[alike[1]]):
        sides = [_sides(lab, one, [main, *alike]) for one in lab.maps]
        if any(sorted(map(sorted, each)) == [["k"], ["q"], ["v"]] for each in sides):
            names += alike
    return tuple(name for name in arguments if name in names)


def _sides(lab: Lab, one: Map, names: list[str]) -> list[set[str]]:
    """Which of queries, keys and values of one attention each argument descends into."""
    found = one.found
    if found.product is None or found.value_serial is None:
        return []
    ends = {"q": found.product.left, "k": found.product.right, "v": found.value_serial}
    made = {side: lab.lineage.ancestors(serial) for side, serial in ends.items()}
    return [{side for side in ends if serial_of(lab, name) in made[side]} for name in names]


def projections(lab: Lab, one: Map) -> set[str]:
    """The parameters that the layers before queries and keys multiply with."""
    product, lineage = one.found.product, lab.lineage
    if product is None:
        return set()
    anchors = lineage.gain(product.left).anchors | lineage.gain(product.right).anchors
    names = set()
    for index in anchors:
        if index < 0 or lineage.events[index].op.name == "embedding":
            continue
        for ref in lineage.refs(lineage.events[index]):
            kind, name = lab.recording.owned.get(lab.recording.leaves.get(ref, -1), ("", ""))
            if kind == "parameter":
                names.add(name)
    return names


def marks(value: Any) -> Tensor | None:
    """A tensor of two values, yes and no, as booleans; None for any other."""
    if not isinstance(value, Tensor) or value.is_complex() or value.numel() < 2:
        return None
    binary = value.dtype is torch.bool or bool(((value == 0) | (value == 1)).all())
    yes = value != 0
    return yes if binary and bool(yes.any()) and not bool(yes.all()) else None


def meets_scores(lab: Lab, name: str) -> bool:
    """Whether an argument meets the scores or the weights of an attention, and none of its queries and
    keys."""
    serial = serial_of(lab, name)
    if serial is None:
        return False
    spread = _spread(lab, serial)
    for one in lab.maps:
        product = one.found.product
        if product is None:
            continue
        made = lab.lineage.ancestors(product.left) | lab.lineage.ancestors(product.right)
        if serial not in made and (one.found.mask_serial in spread or _met(lab, one, spread)):
            return True
    return False


def _spread(lab: Lab, serial: int) -> set[int]:
    """What an argument becomes before a layer makes something else of it."""
    made = {serial}
    for event in lab.lineage.events:
        if plain(event.op.name) not in SOURCES and any(ref in made for ref in lab.lineage.refs(event)):
            made.update(event.outputs)
    return made


def _met(lab: Lab, one: Map, spread: set[int]) -> bool:
    """Whether one step from the product to the use of the weights is given both, the scores whole."""
    found, lineage = one.found, lab.lineage
    assert found.product is not None
    first, size = found.product.event, math.prod(found.shape)
    scores = {ref for ref in lineage.offspring(first) if math.prod(lineage.shape(ref)) == size}
    for index in range(first, found.used_by if found.used_by is not None else found.event):
        refs = lineage.refs(lineage.events[index])
        given = any(ref in spread and ref not in scores for ref in refs)
        if given and (index == first or any(ref in scores for ref in refs)):
            return True
    return False


def reaches_result(lab: Lab, name: str) -> bool:
    """Whether the output descends from an argument."""
    result = lab.recording.result_serial
    return result is not None and serial_of(lab, name) in lab.lineage.ancestors(result)


def is_table_of_angles(values: Any) -> bool:
    """Cosines and sines of growing angles: numbers up to 1 that are 1 and 0 at position 0, or complex
    numbers of that length."""
    array = np.asarray(values)
    if array.ndim < 2 or not array.size or array.dtype.kind not in "fc" or array.size > 1 << 22:
        return False
    size = np.abs(array)
    if not np.isfinite(size).all() or size.max() > 1.001:
        return False
    if array.dtype.kind == "c":
        return bool(np.allclose(size, 1.0, atol=1e-3))
    if np.unique(array[: 1 << 10]).size < 4:
        return False
    return any(
        array.shape[axis] > 1 and bool(np.isin(np.take(array, 0, axis), (0.0, 1.0)).all())
        for axis in range(array.ndim - 1)
    )


def effect_of(lab: Lab, name: str) -> float | None:
    """How much outputs move with other marks: turned round, and drawn at random, for segments turned round
    are the same segments. None where that cannot be tried."""
    value, base = lab.exact.arguments[name], lab.base.output
    with seeded(5):
        drawn = (torch.rand(value.shape) < 0.5).to(value)
    moved = []
    for other in (~value if value.dtype is torch.bool else 1 - value, drawn):
        output = lab.run({name: other}).output
        if output is None or base is None or output.shape != base.shape:
            return None
        moved.append(float(lab.difference(output, ()).max()))
    return max(moved)
