"""By what an attention scales q·k, and by what its equals in the same target do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attnscope.checks.lab import Lab
from attnscope.checks.lineage import Gain, Lineage, contraction
from attnscope.checks.maps import Map
from attnscope.checks.sequences import kinds
from attnscope.ops.catalog import ADDED, FACTORS, FILLS, MOVES, PRODUCTS, SUMS, plain
from attnscope.recorder.found import Product
from attnscope.recorder.record import Event

_HARMLESS = (
    MOVES
    | SUMS
    | FILLS
    | {"tanh", "nan_to_num", "softmax", "cat", "pad", "exp", "clamp", "minimum", "maximum"}
)


@dataclass(frozen=True)
class Scale:
    """`found` is what q·k is multiplied by; `size` the number of terms that q·k sums; `factors` the single
    ones that are not 1; `explicit` says that one stands there, be it 1."""

    found: float
    size: int
    factors: tuple[tuple[float, int], ...]
    event: int
    explicit: bool = False

    @property
    def right(self) -> bool:
        """Whether it is 1/√D."""
        return math.isclose(self.found, self.size**-0.5, rel_tol=1e-2)


def scale_of(one: Map, lab: Lab) -> Scale | None:
    """By what an attention scales q·k since the projections; None where that is learned, normed or
    unclear."""
    if one.found.product is None:
        return None
    left, right = (lab.lineage.gain(side) for side in (one.found.product.left, one.found.product.right))
    if left.factor is None or right.factor is None or left.normed or right.normed:
        return None
    return _scale(one, lab, left.factor * right.factor, (left, right))


def scale_since(one: Map, lab: Lab) -> Scale | None:
    """By what an attention scales q·k since its queries and keys were last normed, or projected."""
    if one.found.product is None:
        return None
    left, right = (lab.lineage.gain(side) for side in (one.found.product.left, one.found.product.right))
    if left.since is None or right.since is None:
        return None
    return _scale(one, lab, left.since * right.since, (left, right))


def _scale(one: Map, lab: Lab, value: float, gains: tuple[Gain, Gain]) -> Scale | None:
    found, lineage = one.found, lab.lineage
    product = found.product
    if product is None or found.source == "mha" or one.along_keys is False:
        return None
    event = lineage.events[product.event]
    factors = [*gains[0].parts, *gains[1].parts]
    explicit = gains[0].explicit or gains[1].explicit
    if found.source == "sdpa":
        given = event.kwargs.get("scale")
        size = lineage.shape(product.left)[-1]
        if given is not None and not isinstance(given, int | float):
            return None
        inner = size**-0.5 if given is None else float(given)
        parts = (*factors, (inner, product.event))
        return Scale(value * inner, size, parts, product.event, explicit or given is not None)
    size_ = _size(event, lineage)
    alpha = event.kwargs.get("alpha", 1) if event.op.name in ADDED else 1
    if not size_ or size_ < 2 or not isinstance(alpha, int | float):
        return None
    if alpha != 1:
        factors.append((float(alpha), product.event))
    later = _later(one, lineage, product)
    if later is None:
        return None
    for factor, index in later:
        value *= factor
        if not math.isclose(factor, 1.0):
            factors.append((factor, index))
    return Scale(value * alpha, size_, tuple(factors), product.event, explicit or bool(later))


def _size(event: Event, lineage: Lineage) -> int | None:
    """The number of terms that a product sums."""
    if event.op.name not in PRODUCTS - {"tensordot"}:
        return None
    refs = lineage.refs(event)
    return contraction(event, [lineage.shape(ref) for ref in (refs[-2:] if event.op.name in ADDED else refs)])


def _later(one: Map, lineage: Lineage, product: Product) -> list[tuple[float, int]] | None:
    """The factors, and their steps, on the way from the product to the softmax; None where one is unclear."""
    path = lineage.score_path(one.found)
    if path is None or len(lineage.products_into(one.found.input_serial)) != 1:
        return None
    factors = []
    for index in path:
        step = lineage.events[index]
        name = plain(step.op.name)
        if name in _HARMLESS:
            continue
        active = [ref for ref in lineage.refs(step) if ref in lineage.offspring(product.event)]
        scaled = lineage.scalar(step, active[0]) if name in FACTORS and len(active) == 1 else None
        if scaled is None or scaled[1]:
            return None
        factors.append((scaled[0], index))
    return factors


# -- among equals ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Others:
    """`number` other attentions of the target that are alike scale by `found`, all of them but `same`."""

    found: float
    number: int
    same: int


def others_of(one: Map, lab: Lab) -> Others | None:
    """How the equals of an attention scale, where it does otherwise: of the same kind, with heads of the
    same size, normed or learned in the same way. None where they do not agree, or are few."""
    part = lab.subject.part
    whole: Lab = part.whole if part is not None and part.whole is not None else lab
    number = part.numbers[one.number] if part is not None and part.numbers else one.number
    if number >= len(whole.all_maps):
        return None
    mine = _alike(whole.all_maps[number], whole)
    if mine is None:
        return None
    agreed: list[float] = []
    same = 0
    for other in whole.all_maps:
        theirs = _alike(other, whole) if other.number != number else None
        if theirs is None or theirs[1:] != mine[1:]:
            continue
        if math.isclose(theirs[0], mine[0], rel_tol=1e-2):
            same += 1
        else:
            agreed.append(theirs[0])
    if len(agreed) < 2 * (same + 1) or not all(math.isclose(x, agreed[0], rel_tol=1e-2) for x in agreed):
        return None
    return Others(agreed[0], len(agreed), same)


def _alike(one: Map, whole: Lab) -> tuple[float, object] | None:
    """An attention's scale since the last norm, and what has to be equal for a comparison."""
    scale, product = scale_since(one, whole), one.found.product
    if scale is None or product is None:
        return None
    gains = [whole.lineage.gain(side) for side in (product.left, product.right)]
    return scale.found, (
        whole.once(kinds)[one.number],
        scale.size,
        one.shape[1],
        [(gain.normed, gain.learned) for gain in gains],
    )
