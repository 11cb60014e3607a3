"""What lets a token see the future: the pairs that leak, and which of the ways to leak it is.

Outputs prove the leak; the weights of each attention, and the step at which an earlier token first changes,
say where it comes from. Each leak is of one kind, and one check speaks of each kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from attnscope.checks.lab import Lab
from attnscope.checks.maps import NOTHING, Map
from attnscope.ops.catalog import FACTORS, FILLS, SUMS, TRIANGLES, plain
from attnscope.recorder.tensors import Ref, refs_in, to_numpy

Kind = Literal[
    "none", "shifted", "inverted", "weak", "dropped", "after", "axis", "mixed", "window", "prefix", "block",
    "open", "heads", "other", "elsewhere",
]  # fmt: skip

# A weight below this is none: softmax of a masked score.
SMALL = 1e-9


@dataclass(frozen=True)
class Leak:
    """`pairs` are (output token, input token, relative change), the largest first, of `total` pairs tried.

    `map` is the attention that lets them through; `weight` its largest weight on a later key. `by` is the
    number
    of later tokens that each token sees. `event` is the step held responsible, `mask` the step that made the
    mask, `owner` the name of a buffer or argument that it came from. `detail` is for the kind.
    """

    kind: Kind
    pairs: tuple[tuple[int, int, float], ...] = ()
    total: int = 0
    map: Map | None = None
    weight: float = 0.0
    by: int = 0
    event: int | None = None
    mask: int | None = None
    owner: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


def leak_of(lab: Lab) -> Leak:
    """The leak of a subject, found once."""
    return lab.once(_leak)


def _leak(lab: Lab) -> Leak:
    influence = lab.influence
    if influence is None:
        return Leak("none")
    tried = influence.pairs(future=True)
    usable = ~lab.empty[: influence.moved.shape[0]] if lab.empty.shape[1] == lab.length else None
    pairs = []
    for column, t, s in tried:
        moved = influence.moved[:, t, column]
        if usable is not None and usable.shape[0] == moved.shape[0]:
            moved = moved[usable[:, t]]
        if moved.size and float(moved.max()) > lab.tolerance:
            pairs.append((t, s, float(moved.max())))
    pairs.sort(key=lambda pair: -pair[2])
    if not pairs:
        return Leak("none", total=len(tried))
    found = _explain(lab)
    if found.kind in ("prefix", "block", "window") and len(lab.maps) == 1 and found.map is not None:
        edge = visible(found.map) > SMALL
        if any(not edge[t, s] for t, s, _ in pairs):  # more leaks than this pattern lets through
            found = Leak("elsewhere", event=first_change(lab))
    return Leak(
        found.kind, tuple(pairs), len(tried), found.map, found.weight, found.by, found.event, found.mask,
        found.owner, found.detail,
    )  # fmt: skip


def _explain(lab: Lab) -> Leak:
    from attnscope.checks.mixing import mixing_of

    mixing = mixing_of(lab)
    wrong = next((one for one in lab.maps if wrong_axis(one, lab)), None)
    if wrong is not None:
        return Leak("axis", map=wrong, event=wrong.event)
    if mixing is not None and mixing.tokens:
        return Leak("mixed", event=mixing.event)
    for one in lab.maps:
        found = _of_map(one, lab)
        if found is not None:
            return found
    return Leak("elsewhere", event=first_change(lab))


def wrong_axis(one: Map, lab: Lab) -> bool:
    """The softmax does not run along the keys: what the product sums over does not sum to 1, another axis
    does. Slots that compete for a token are no fault: they are normalised over the keys afterwards."""
    if one.along_keys is not False or one.weights is None:
        return False
    if one.applied is not None and np.nanmax(np.abs(one.applied.sum(axis=-1) - 1.0)) <= 1e-3:
        return False
    rows = one.weights.sum(axis=-1)
    return bool(np.nanmax(np.abs(rows - 1.0)) > 1e-3)


def visible(one: Map) -> Any:
    """[Q, K]: the largest weight of any head and entry that was applied, rows without any key left out."""
    weights = one.applied
    if one.masked is not None and one.masked.shape == weights.shape:
        bare = (one.masked.max(axis=-1, keepdims=True) < NOTHING) | np.isnan(one.masked).all(
            -1, keepdims=True
        )
        weights = np.where(bare, 0.0, weights)
    return np.nan_to_num(weights, nan=0.0).__abs__().max(axis=0)


def is_lower(seen: Any) -> bool:
    """Whether what is seen [Q, K] is a causal triangle, however many queries and keys there are.

    Keys that no query sees, padding for one, say nothing.
    """
    queries, keys = seen.shape
    open_ = seen.any(axis=0)
    triangle = np.tri(queries, keys, dtype=bool)
    return min(queries, open_.sum()) > 2 and bool((seen == triangle)[:, open_].all())


def later_weight(one: Map, lab: Lab) -> float:
    """The largest weight on a later key; 0 where there is none that counts."""
    later = ~np.tri(lab.length, dtype=bool)
    weight = float(visible(one)[later].max()) if later.any() else 0.0
    return weight if weight > SMALL else 0.0


def is_over_tokens(one: Map, lab: Lab) -> bool:
    """Queries and keys are both the module's own tokens."""
    if one.applied is None or one.applied.shape[1:] != (lab.length, lab.length):
        return False
    return all(letter in (None, "T", "S") for letter in one.letters)


def _of_map(one: Map, lab: Lab) -> Leak | None:
    if not is_over_tokens(one, lab):
        return None
    seen = visible(one)
    n = lab.length
    later = ~np.tri(n, dtype=bool)
    weight = later_weight(one, lab)
    softmaxed = one.weights
    if not weight:
        if softmaxed is not None and np.nan_to_num(softmaxed).max(axis=0)[later].max(initial=0.0) > SMALL:
            return Leak("after", map=one, event=after_event(one, lab) or one.event)
        return None
    mask, apply, owner = mask_of(one, lab)
    edge = seen > SMALL
    span = apply if apply is not None else one.event
    common: dict[str, Any] = {"map": one, "weight": weight, "mask": mask, "owner": owner}
    past = np.tri(n, k=-1, dtype=bool)
    if not edge[past].any():
        return Leak("inverted", event=span, **common)
    if (edge == edge[:1]).all():  # every query sees the same keys: of padding, if any, and not of order
        return _open(one, lab, common)
    for by in range(1, n - 1):
        if (edge == np.tri(n, k=by, dtype=bool)).all():
            return Leak("shifted", by=by, event=mask if mask is not None else span, **common)
    for width in range(2, n):
        if (edge == (np.tri(n, dtype=bool) | (np.arange(n)[None, :] < width))).all():
            return Leak("prefix", by=width, event=span, **common)
    band = [(np.arange(n)[None, :] - np.arange(n)[:, None])]
    for width in range(1, n - 1):
        if (edge == (np.abs(band[0]) <= width)).all():
            return Leak("window", by=width, event=span, **common)
    for size in range(2, n):
        blocks = np.arange(n) // size
        if (edge == (blocks[:, None] >= blocks[None, :])).all() or (
            edge == (blocks[:, None] == blocks[None, :])
        ).all():
            return Leak("block", by=size, event=span, **common)
    heads = np.nan_to_num(one.applied)[:, later].max(axis=1) > SMALL
    if heads.any() and not heads.all():
        common["detail"] = {"heads": [int(i) for i in np.flatnonzero(heads)], "of": len(heads)}
        return Leak("heads", event=span, **common)
    return Leak("other", event=span, **common)


def _open(one: Map, lab: Lab, common: dict[str, Any]) -> Leak:
    """Every key has weight: is there a mask that is too weak, one that is dropped, or none?"""
    weak = weak_mask(one, lab)
    if weak is not None:
        return Leak("weak", event=weak[0], **{**common, "detail": weak[1]})
    dropped = dropped_mask(one, lab)
    if dropped is not None:
        thrown, owner, detail = dropped
        return Leak("dropped", event=thrown, **{**common, "owner": owner, "detail": detail})
    return Leak("open", event=one.event, **common)


# -- masks ---------------------------------------------------------------------------------------------------


def mask_of(one: Map, lab: Lab) -> tuple[int | None, int | None, str]:
    """The step that made the mask's triangle, the step that applied the mask, and the buffer or argument
    it is."""
    found = one.found
    lineage = lab.lineage
    apply = found.product.mask_event if found.product is not None else None
    if found.source != "softmax":
        apply = found.event if found.mask_serial is not None or found.is_causal else None
    if found.mask_serial is None:
        return None, apply, ""
    ancestors = lineage.ancestors(found.mask_serial)
    made = None
    for index, event in enumerate(lineage.events):
        if plain(event.op.name) in TRIANGLES and any(out in ancestors for out in event.outputs):
            made = index
    arguments = {serial: name for name, serial in lineage.recording.arguments}
    owner = next((arguments[s] for s in ancestors if s in arguments), "")
    for serial in ancestors:
        kind, name = lineage.recording.owned.get(lineage.recording.leaves.get(serial, -1), ("", ""))
        if kind in ("buffer", "attribute") and not owner:
            owner = name
    return made, apply, owner


def triangle(values: Any) -> tuple[float, float] | None:
    """(value below, value above) of an array whose last two axes hold a triangle, else None."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim < 2 or array.shape[-1] < 3 or array.shape[-2] != array.shape[-1]:
        return None
    square = array.reshape(-1, *array.shape[-2:])[0].astype(np.float64)
    n = square.shape[0]
    above = square[np.triu_indices(n, 2)]
    below = square[np.tril_indices(n, -2)]
    if (
        not above.size
        or not (above == above[0]).all()
        or not (below == below[0]).all()
        or above[0] == below[0]
    ):
        return None
    return float(below[0]), float(above[0])


def held(lab: Lab, serial: int) -> Any:
    """The numbers of a tensor, whether a step made it or it is a buffer."""
    value = lab.lineage.value(serial)
    if value is not None or serial in lab.lineage.producer:
        return value
    for name, given in lab.recording.arguments:
        if given == serial:
            argument = lab.exact.arguments.get(name)
            return None if argument is None else to_numpy(argument)
    return lab.lineage.leaf_value(serial)


def weak_mask(one: Map, lab: Lab) -> tuple[int, dict[str, Any]] | None:
    """A step between product and softmax that lowers later scores, but not enough; and by what."""
    path = lab.lineage.score_path(one.found) or []
    for index in path:
        event = lab.lineage.events[index]
        name = plain(event.op.name)
        others = [
            ref for ref in lab.lineage.refs(event) if ref not in lab.lineage.active or _is_mask(ref, lab)
        ]
        sides = next((t for t in (triangle(held(lab, ref)) for ref in others) if t is not None), None)
        if name in SUMS | {"mul"} and sides is not None:
            return index, {"op": name, "below": sides[0], "above": sides[1]}
        if name in FILLS:
            numbers = [x for x in (*event.args, *event.kwargs.values()) if isinstance(x, float | int)]
            numbers = [x for x in numbers if not isinstance(x, bool)]
            for ref in others:
                value = held(lab, ref)
                if value is not None and np.size(value) and np.asarray(value).dtype != np.bool_:
                    flat = np.asarray(value).reshape(-1)
                    if (flat == flat[0]).all():
                        numbers.append(float(flat[0]))
            if numbers and -1000 < numbers[-1] < 1e9:
                return index, {"op": name, "fill": float(numbers[-1])}
    if one.found.source == "sdpa" and one.found.mask_serial is not None:
        value = held(lab, one.found.mask_serial)
        sides = triangle(value)
        if sides is not None and np.asarray(value).dtype != np.bool_:
            return one.event, {"op": "add", "below": sides[0], "above": sides[1]}
    return None


def _is_mask(ref: int, lab: Lab) -> bool:
    names = {serial: name for name, serial in lab.recording.arguments}
    return ref in names and names[ref] != lab.main


def dropped_mask(one: Map, lab: Lab) -> tuple[int | None, str, dict[str, Any]] | None:
    """A mask that exists and does not reach the softmax: a result that is thrown away, a buffer that is
    not read."""
    lineage = lab.lineage
    used = lineage.ancestors(one.found.input_serial) | lineage.ancestors(one.found.serial)
    if one.found.mask_serial is not None:
        used |= lineage.ancestors(one.found.mask_serial)
    result = lab.recording.result_serial
    fallback: int | None = None
    for index, event in enumerate(lineage.events):
        name = plain(event.op.name)
        if any(out in used for out in event.outputs) or not event.direct:
            continue
        unused = not any(lineage.users.get(out) for out in event.outputs) and result not in event.outputs
        masking = name in FILLS | SUMS | TRIANGLES | {"mul"}
        if unused and masking and (name == "masked_fill" or _holds_triangle(event, lab)):
            return index, "", {"op": name}
        if any(triangle(lineage.value(out)) is not None for out in event.outputs):
            fallback = index
    if fallback is not None:
        return fallback, "", {"op": lineage.events[fallback].op.name}
    from attnscope.checks.subject import parts

    read = set(lab.recording.leaves.values())
    for path, part in parts(lab.recording.root):
        for name, buffer in (vars(part).get("_buffers") or {}).items():
            if buffer is not None and id(buffer) not in read and triangle(_corner(buffer)) is not None:
                owner = f"{path}.{name}" if path else name
                return None, owner, {"module": part, "name": name}
    return None


def _corner(buffer: Any) -> Any:
    """The first rows and columns of a tensor's last two axes, which are enough to see a triangle."""
    if buffer.is_meta or buffer.is_complex() or buffer.dim() < 2:
        return None
    return buffer.detach().reshape(-1, *buffer.shape[-2:])[:1, :64, :64].float().cpu().numpy()


def _holds_triangle(event: Any, lab: Lab) -> bool:
    refs = [*refs_in(event.args), *event.outputs]
    return any(triangle(held(lab, int(ref))) is not None for ref in refs if ref is not None)


def after_event(one: Map, lab: Lab) -> int | None:
    """The step after the softmax that changed the weights: a `mul` or a fill."""
    current = one.found.applied_serial
    for _ in range(len(lab.lineage.events)):
        if current is None or current == one.found.serial:
            return None
        index = lab.lineage.producer.get(current)
        if index is None:
            return None
        event = lab.lineage.events[index]
        if plain(event.op.name) in FILLS | FACTORS:
            return index
        refs = [int(arg) for arg in event.args if type(arg) is Ref]
        current = next((ref for ref in refs if ref in lab.lineage.active), None)
    return None


# -- the first step that changes -----------------------------------------------------------------------------


def first_change(lab: Lab) -> int | None:
    """The first step, scores apart, at which a token changes before the one that was changed."""
    s = lab.length - 1
    values = lab.changed(lab.at(token=s))
    other = lab.record(lab.exact, values)
    one = lab.recording
    if other.error is not None or len(other.events) != len(one.events):
        return None
    for index, (a, b) in enumerate(zip(one.events, other.events, strict=True)):
        if a.values is None or b.values is None or a.op is not b.op:
            continue
        for serial, left, right in zip(a.outputs, a.values, b.values, strict=False):
            dims = lab.steps.axes.of.get(serial, ())
            labels = [dim.label for dim in dims]
            if left is None or right is None or left.shape != right.shape or "S" in labels:
                continue
            if labels.count("T") != 1:
                continue
            place = labels.index("T")
            if left.shape[place] != lab.length:
                continue
            early_left = np.take(left, range(s), axis=place)
            early_right = np.take(right, range(s), axis=place)
            if early_left.dtype == np.bool_ or not early_left.size:
                continue
            with np.errstate(invalid="ignore"):
                delta = np.abs(early_left - early_right)
            top = float(np.nanmax(np.abs(early_left))) if np.isfinite(early_left).any() else 1.0
            if float(np.nan_to_num(delta).max()) > lab.tolerance * max(top, 1e-12):
                return index
    return None
