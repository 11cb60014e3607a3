"""A second run, with padding: which keys each attention then gives weight to.

What a target is called with holds no padding, so that a mask of it has nothing to hide. Where steps compare a
sequence with a number (`src != pad`), or an argument marks some of its keys, tokens are made to be padding by
that comparison, or by that argument, and the target runs again. Nothing is read but data flow and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from attnscope.checks.evidence import mask_ancestors
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL
from attnscope.checks.lineage import Lineage
from attnscope.checks.maps import Map
from attnscope.checks.roles import serial_of
from attnscope.checks.sequences import beside, tokens_of
from attnscope.ops.catalog import CASTS, COMPARISONS, LIKES, REDUCTIONS, SOURCES, plain

Seen = Literal["hidden", "open", "inverted"]

_MOST_COMPARISONS = 4
_COUNTS = frozenset(
    {"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"}
)  # they number, and mark nothing


@dataclass(frozen=True)
class Padded:
    """One run in which tokens of the sequence `name` are padding.

    `pads` [B, S] is True where they are. `marks` are the serials, in that run, of what tells them apart, made
    by step `event` or handed over as the argument `by`. `fill` is the number that means padding: an id, or 0
    for rows of zeros; None where an argument says it.
    """

    name: str
    lab: Lab
    pads: Any
    marks: frozenset[int]
    event: int | None = None
    by: str = ""
    fill: float | None = None


def padded_runs(lab: Lab) -> Iterator[Padded]:
    """A run for each sequence and each way in which the target tells its padding apart."""
    for name in _sequences(lab):
        done: set[float] = set()
        for event in _comparisons(lab.lineage, serial_of(lab, name))[:_MOST_COMPARISONS]:
            for fill in _fills(lab, name, event):
                if fill in done or lab.spent:
                    continue
                done.add(fill)
                run = _compared(lab, name, event, fill)
                if run is not None:
                    yield run
    for argument, value in lab.exact.arguments.items():
        for make in (_marked, _counted):
            run = make(lab, argument, value) if isinstance(value, Tensor) and not lab.spent else None
            if run is not None:
                yield run


def _sequences(lab: Lab) -> list[str]:
    """Arguments that hold tokens: ids [B, S], or rows [B, S, C]."""
    found = []
    for name, value in lab.exact.arguments.items():
        axes = lab.exact.axes.get(name, ())
        if not isinstance(value, Tensor) or value.dtype is torch.bool or len(axes) != value.dim():
            continue
        rows = value.is_floating_point()
        if value.dim() == 2 + rows and "B" in axes and sum(a in ("T", "S") for a in axes) == 1:
            found.append(name)
    return found


def token_axis(lab: Lab, name: str) -> int:
    return next(i for i, a in enumerate(lab.exact.axes[name]) if a in ("T", "S"))


def _comparisons(lineage: Lineage, serial: int | None) -> list[int]:
    """Steps that make true and false of a sequence, before a layer makes anything else of it."""
    if serial is None:
        return []
    plainly = {serial}
    found = []
    for index, event in enumerate(lineage.events):
        name = plain(event.op.name)
        if not any(ref in plainly for ref in lineage.refs(event)) or name in SOURCES | _COUNTS | LIKES:
            continue
        made = lineage.recording.made
        if name in COMPARISONS | CASTS and all(made[out][2] is torch.bool for out in event.outputs):
            found.append(index)
        else:
            plainly.update(event.outputs)
    return found


def _fills(lab: Lab, name: str, event: int) -> list[float]:
    """Numbers that a comparison may set apart: the one that it is made with, and zero."""
    step = lab.lineage.events[event]
    numbers: list[float] = []
    for value in (*step.args, *step.kwargs.values()):
        if type(value) in (int, float):
            numbers.append(float(value))
    for ref in lab.lineage.refs(step)[1:]:
        held = lab.lineage.value(ref)
        held = lab.lineage.leaf_value(ref) if held is None else held
        if held is not None and np.size(held) == 1:
            numbers.append(float(np.asarray(held).reshape(-1)[0]))
    if lab.exact.arguments[name].is_floating_point():
        return [0.0]
    return [number for number in dict.fromkeys([*numbers, 0.0]) if number >= 0 and number == int(number)]


def _compared(lab: Lab, name: str, event: int, fill: float) -> Padded | None:
    """The run in which the last tokens of some entries are what the comparison sets apart."""
    value, axis = lab.exact.arguments[name], token_axis(lab, name)
    rows = (value == fill).all(-1) if value.is_floating_point() else value == fill
    pads = (rows if axis == 1 else rows.T).cpu().numpy()
    run = lab
    if not pads.any():
        pads = _last(pads)
        if pads is None:
            return None
        where = torch.from_numpy(pads if axis == 1 else pads.T).to(value.device)
        where = where[..., None] if value.is_floating_point() else where
        run = called_with(lab, {name: torch.where(where, torch.full_like(value, int(fill)), value)})
    if run.recording.error is not None:
        return None
    lineage = run.lineage
    telling = [
        index
        for index in _comparisons(lineage, serial_of(run, name))
        if _tells(lineage.value(lineage.events[index].outputs[0]), pads, axis)
    ]
    if not telling:
        return None
    marks = frozenset(out for index in telling for out in lineage.events[index].outputs)
    return Padded(name, run, pads, marks, telling[0], fill=fill)


def _last(pads: Any) -> Any:
    """The last two tokens of every second entry, the first of all; of three tokens the last one."""
    length = pads.shape[1]
    if length < 3:
        return None
    made = np.zeros_like(pads)
    made[::2, length - (2 if length > 3 else 1) :] = True
    return made


def _tells(values: Any, pads: Any, axis: int) -> bool:
    """Whether true and false stand for padding, or for all but padding."""
    if values is None or np.size(values) != pads.size:
        return False
    for turned in (pads, pads.T):
        flat = np.asarray(values).reshape(-1) == turned.reshape(-1)
        shape = [n for n in np.shape(values) if n != 1]
        if shape == [n for n in turned.shape if n != 1] and (flat.all() or not flat.any()):
            return True
    return False


def called_with(lab: Lab, values: dict[str, Any]) -> Lab:
    """The same target in another call, on the same copy."""
    other = Lab(lab.subject.with_arguments(values), lab.budget)
    exact = lab.exact.with_arguments(values)
    other.__dict__ |= {"exact": exact, "_exact": (exact, lab.precise)}
    return other


# -- arguments that mark ------------------------------------------------------------------------------------


def _marked(lab: Lab, argument: str, value: Tensor) -> Padded | None:
    """The run in which an argument blocks the last keys of an attention that it masks."""
    serial = serial_of(lab, argument)
    masked = [one for one in lab.all_maps if serial is not None and serial in reached(lab, one)]
    names = {name for one in masked for name in keys_of(lab, one)}
    if len(names) != 1 or argument in names:
        return None
    name = names.pop()
    source = lab.exact.arguments[name]
    axis = token_axis(lab, name) if name in _sequences(lab) else None
    if axis is None:
        return None
    sizes = source.shape[1 - axis], source.shape[axis]
    if [n for n in value.shape if n != 1] not in ([*sizes], [sizes[1]]) or value.shape[-1] != sizes[1]:
        return None
    flat = value.reshape(-1, sizes[1])
    if _values(flat).size > 1:
        return _as_handed(lab, argument, name, flat, sizes[0])
    pads = _last(np.zeros((len(flat), sizes[1]), dtype=bool))
    if pads is None:
        return None
    other = _other_side(flat)
    where = torch.from_numpy(pads).to(value.device)
    run = called_with(lab, {argument: torch.where(where, other, flat).reshape(value.shape)})
    made = Padded(name, run, np.broadcast_to(pads, sizes), _serials(run, argument), by=argument)
    return made if run.recording.error is None and any_hidden(made) else None


def _as_handed(lab: Lab, argument: str, name: str, flat: Tensor, batch: int) -> Padded | None:
    """What the argument marks as it is; which of its values blocks, an attention shows that obeys it."""
    for side in _values(flat)[:2]:
        pads = np.broadcast_to(flat.cpu().numpy() == side, (batch, flat.shape[1]))
        made = Padded(name, lab, pads, _serials(lab, argument), by=argument)
        if any_hidden(made):
            return made
    return None


def _counted(lab: Lab, argument: str, value: Tensor) -> Padded | None:
    """The run in which an argument [B] says that some entries are shorter: what is compared with it marks."""
    if value.dim() != 1 or value.is_floating_point() or value.dtype is torch.bool:
        return None
    for name in _sequences(lab):
        axis = token_axis(lab, name)
        shape = lab.exact.arguments[name].shape
        entries, length = shape[1 - axis], shape[axis]
        if len(value) != entries or length < 3 or int(value.max()) > length or int(value.min()) < 1:
            continue
        run, lengths = lab, value
        if bool((value == length).all()):
            lengths = value.clone()
            lengths[::2] -= 2 if length > 3 else 1
            if lab.recording.error is None and not _comparisons(lab.lineage, serial_of(lab, argument)):
                continue
            run = called_with(lab, {argument: lengths})
        pads = np.arange(length)[None, :] >= lengths.cpu().numpy()[:, None]
        if run.recording.error is not None or not pads.any():
            continue
        lineage = run.lineage
        telling = [
            index
            for index in _comparisons(lineage, serial_of(run, argument))
            if _tells(lineage.value(lineage.events[index].outputs[0]), pads, axis)
        ]
        if telling:
            marks = frozenset(out for index in telling for out in lineage.events[index].outputs)
            return Padded(name, run, pads, marks, telling[0], by=argument)
    return None


def _values(flat: Tensor) -> Any:
    return np.unique(flat.detach().cpu().numpy())


def _other_side(flat: Tensor) -> Tensor:
    """What blocks where one value alone, which lets all keys through, stands."""
    if flat.dtype is torch.bool:
        return ~flat
    if bool((flat == 0).all()) and flat.is_floating_point():
        return torch.full_like(flat, float("-inf"))
    return 1 - flat


def _serials(lab: Lab, argument: str) -> frozenset[int]:
    serial = serial_of(lab, argument)
    return frozenset() if serial is None else frozenset({serial})


# -- what attentions do -------------------------------------------------------------------------------------


def keys_of(lab: Lab, one: Map) -> frozenset[str]:
    """The arguments whose tokens the keys of an attention are."""
    product = one.found.product
    return tokens_of(lab, product.right) & set(_sequences(lab)) if product is not None else frozenset()


def reached(lab: Lab, one: Map) -> set[int]:
    """What the masks of an attention were made of, without what only numbers tokens."""
    return mask_ancestors(one, lab, stop=_COUNTS)


def attentions(padded: Padded) -> dict[int, Seen]:
    """By their numbers, what the attentions over the padded sequence do with its padding."""
    found: dict[int, Seen] = {}
    for one in padded.lab.all_maps:
        weights = one.bhts("applied")
        if weights is None or not beside(padded.lab, padded.name, keys_of(padded.lab, one)):
            continue
        if weights.shape[-1] != padded.pads.shape[1] or weights.shape[0] != padded.pads.shape[0]:
            continue
        product = one.found.product
        own = product is not None and beside(padded.lab, padded.name, tokens_of(padded.lab, product.left))
        found[one.number] = _seen(np.nan_to_num(np.abs(weights)), padded.pads, own)
    return found


def _seen(weights: Any, pads: Any, own: bool) -> Seen:
    open_, inverted = False, True
    for entry in range(len(pads)):
        if not pads[entry].any() or pads[entry].all():
            continue
        rows = (
            weights[entry][:, ~pads[entry]] if own and weights.shape[2] == pads.shape[1] else weights[entry]
        )
        open_ |= bool((rows[..., pads[entry]] > SMALL).any())
        inverted &= not bool((rows[..., ~pads[entry]] > SMALL).any())
    return "hidden" if not open_ else "inverted" if inverted else "open"


def weight_on(padded: Padded, one: Map) -> float:
    """The largest weight on a padded key."""
    weights = np.nan_to_num(np.abs(one.bhts("applied")))
    return float(max(weights[b][..., padded.pads[b]].max(initial=0.0) for b in range(len(padded.pads))))


def any_hidden(padded: Padded) -> bool:
    """Whether some attention does not look at what is said to be padding."""
    return padded.pads.any() and "hidden" in attentions(padded).values()


def goes_nowhere(padded: Padded) -> bool:
    """Whether the marks of padding reach neither an attention nor the result, and nothing is counted of
    them."""
    lineage = padded.lab.lineage
    spread = set(padded.marks)
    for event in lineage.events:
        if any(ref in spread for ref in lineage.refs(event)):
            if plain(event.op.name) in REDUCTIONS | SOURCES | _COUNTS | {"item", "bool", "nonzero"}:
                return False
            spread.update(event.outputs)
    return padded.lab.recording.result_serial not in spread
