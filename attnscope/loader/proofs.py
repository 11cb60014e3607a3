"""What a call that runs shows: its layout, the polarity of a mask, whether it is causal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from attnscope.loader import candidates as cand
from attnscope.loader import roles
from attnscope.loader.candidates import Candidate
from attnscope.loader.fitting import descend, reach, sequences_of
from attnscope.loader.options import mask_options
from attnscope.loader.probe import (
    Outcome,
    along,
    changed,
    disturb,
    finite_share,
    time_axis,
)
from attnscope.loader.search import MASKS, SAME, Search

_MAINS = [cand.MAIN[name] for name in ("btc", "tbc", "ids", "tb")]
_SECONDS = [cand.SECOND[name] for name in ("bsc", "sbc", "bs", "sb")]


def prove_main(search: Search, outcome: Outcome) -> Outcome:
    """Of two sequences of different lengths the main one is that whose length the output has."""
    main = search.choice.get(search.main)
    other = next((n for n, c in search.choice.items() if c in _SECONDS), None)
    if main not in _MAINS or other is None or outcome.output is None or search.main in search.given:
        return outcome
    frame = search.frame
    lengths = list(outcome.output.shape[:-1])
    if frame.B in lengths:
        lengths.remove(frame.B)
    if frame.T in lengths or frame.T - 1 in lengths or frame.S not in lengths:
        return outcome
    kept = search.main, dict(search.choice), dict(search.widths), dict(search.vocabularies), frame
    second = _SECONDS[_MAINS.index(main)]
    search.choice = {
        **search.choice,
        search.main: second,
        other: _MAINS[_SECONDS.index(search.choice[other])],
    }
    for table, size in ((search.widths, "C"), (search.vocabularies, "vocab")):
        mine = table.pop(other, getattr(frame, size))
        table[search.main] = getattr(frame, size)
        search.frame = replace(search.frame, **{size: mine})
    search.main = other
    tried = search.try_choice(search.choice)
    if not tried.ran:
        tried = descend(search, tried, required=True)
    if tried.ran:
        return tried
    search.main, search.choice, search.widths, search.vocabularies, search.frame = kept
    return outcome


def prove_layout(search: Search, outcome: Outcome) -> Outcome:
    """[T, B, C] where a batch entry of axis 0 is seen by the others of axis 0 and of axis 1 by none."""
    if search.layout_name(None) not in ("btc", "ids") or outcome.output is None or _is_torchs(search):
        return outcome
    seen = roles.unpacked(search.tree, search.main)
    if seen is not None and seen.rank >= 2:
        return outcome
    if reach(search, outcome) == (True, False):
        changes = {n: cand.turned(search.choice[n]) for n in sequences_of(search)}
        swapped = search.try_choice({**search.choice, **changes})
        if swapped.ran:
            search.choice = {**search.choice, **changes}
            return swapped
    return outcome


def _is_torchs(search: Search) -> bool:
    return type(search.module).__module__.startswith("torch.nn.")


def prove_masks(search: Search, outcome: Outcome) -> tuple[Outcome, bool | None]:
    """Find for each mask the convention that the module proves to use, and whether the call is causal."""
    required = [
        p
        for p in search.parameters
        if p.role in MASKS and p.name in search.choice and p.name not in search.given
    ]
    # A mask of the main sequence that mixes entries would spoil the proof of the others.
    for p in sorted(required, key=lambda p: search.choice[p.name].over == "S"):
        if search.choice[p.name] is not cand.NONE:
            outcome = _prove_mask(search, p, outcome, must=True)
    causal = is_causal(search, search.values(search.choice), outcome)
    if search.causal and causal is False and not roles.makes_own_mask(search.source):
        for p in search.parameters:
            free = p.name not in search.given and p.name not in search.choice
            if p.role in ("mask", "causal") and not p.required and free:
                tried = (
                    _prove_mask(search, p, outcome, must=False)
                    if p.role == "mask"
                    else _flag(search, p, outcome)
                )
                if tried is not outcome:
                    return tried, True
    return outcome, causal


def _prove_mask(search: Search, p: roles.Parameter, outcome: Outcome, must: bool) -> Outcome:
    fallback: tuple[Candidate, Outcome] | None = None
    for candidate in mask_options(search, p):
        if search.spent:
            break
        keys = _keys(search, candidate)
        per_query = "T" in candidate.axes
        if (not per_query or candidate.over == "S") and not must:
            continue
        crossed = per_query and keys != search.frame.T
        tested = candidate if per_query and not crossed else cand.repattern(candidate, "first", keys)
        choice = {**search.choice, p.name: tested}
        tried = search.try_choice(choice)
        if not tried.ran:
            continue
        values = search.values(choice)
        holds = (
            is_causal(search, values, tried)
            if per_query and not crossed
            else _hides_first(search, values, tried, candidate.over)
        )
        mixes = _mixes_batch(search, values, tried, candidate.over)
        if holds and not mixes:
            final = _final(search, candidate, per_query and not crossed, keys)
            search.choice = {**search.choice, p.name: final}
            return search.try_choice(search.choice)
        if fallback is None and finite_share(tried.output) == 1.0 and not mixes:
            fallback = candidate, tried
    if must and fallback is not None:
        keys = _keys(search, fallback[0])
        per_query = "T" in fallback[0].axes and keys == search.frame.T
        search.choice = {**search.choice, p.name: _final(search, fallback[0], per_query, keys)}
        return search.try_choice(search.choice)
    return outcome


def _mixes_batch(search: Search, values: Mapping[str, Any], outcome: Outcome, over: str = "T") -> bool:
    """A mask of too many axes spreads the scores over another one: entry 0, of the sequence that it is over,
    then moves the others."""
    main, chosen = values.get(search.main), search.choice.get(search.main, SAME)
    if "B" not in chosen.axes or not isinstance(main, Tensor) or outcome.output is None:
        return False
    axis = chosen.axes.index("B")
    if main.shape[axis] < 2 or outcome.output.dim() <= axis or outcome.output.shape[axis] != main.shape[axis]:
        return False
    changes = [_disturbed(search, values, axis, 0)]
    for name in _seconds(search, values) if over == "S" else ():
        axes = search.choice.get(name, SAME).axes
        if "B" in axes:
            made = disturb(values[name], axes.index("B"), 0, search.frame.vocab)
            changes.append({**values, name: made})
    moved = [changed(outcome.output, search.attempt(change).output) for change in changes]
    return any(one is not None and any(along(one, axis)[1:]) for one in moved)


def _seconds(search: Search, values: Mapping[str, Any]) -> list[str]:
    """The arguments that are a second sequence."""
    return [
        p.name for p in search.parameters if p.role == "memory" and isinstance(values.get(p.name), Tensor)
    ]


def _keys(search: Search, candidate: Candidate) -> int:
    """How many keys a mask is for."""
    second = search.second_length()
    if second is None:
        return search.keys()
    return second if candidate.over == "S" else search.frame.T


def _flag(search: Search, p: roles.Parameter, outcome: Outcome) -> Outcome:
    choice = {**search.choice, p.name: cand.constant("True", True)}
    tried = search.try_choice(choice)
    if tried.ran and is_causal(search, search.values(choice), tried):
        search.choice = choice
        return tried
    return outcome


def _final(search: Search, candidate: Candidate, per_query: bool, keys: int) -> Candidate:
    return candidate if per_query and search.causal else cand.repattern(candidate, "all", keys)


def is_causal(search: Search, values: Mapping[str, Any], outcome: Outcome) -> bool | None:
    """True when earlier outputs do not move with the last token and the last moves with the first."""
    main, axes = values.get(search.main), search.time_axes()
    if not isinstance(main, Tensor) or axes is None or outcome.output is None:
        return None
    length = main.shape[axes[0]]
    out_axis = time_axis(outcome.output, length, axes[1])
    if out_axis is None or length < 3:
        return None
    if finite_share(outcome.output) < 1.0:
        return False
    late = search.attempt(_disturbed(search, values, axes[0], length - 1))
    early = search.attempt(_disturbed(search, values, axes[0], 0))
    a, b = changed(outcome.output, late.output), changed(outcome.output, early.output)
    if a is None or b is None:
        return None
    return not any(along(a, out_axis)[:-1]) and along(b, out_axis)[-1]


def _hides_first(search: Search, values: Mapping[str, Any], outcome: Outcome, over: str) -> bool:
    """With key 0 blocked, token 0 moves no output but its own; unblocked it moves some."""
    axes = search.time_axes()
    source, axis = search.main, axes[0] if axes is not None else 0
    for name in _seconds(search, values) if over == "S" else ():
        chosen = search.choice.get(name, SAME)
        source, axis = name, chosen.axes.index("S") if "S" in chosen.axes else 1
    value = values.get(source)
    if not isinstance(value, Tensor) or axes is None or outcome.output is None:
        return False
    if source == search.main:
        other = search.attempt(_disturbed(search, values, axis, 0))
    else:
        other = search.attempt({**values, source: disturb(value, axis, 0, search.frame.vocab)})
    difference = changed(outcome.output, other.output)
    out_axis = time_axis(outcome.output, search.frame.T, axes[1])
    if difference is None or out_axis is None:
        return False
    moved = along(difference, out_axis)
    start = 1 if source == search.main else 0
    later = outcome.output.narrow(out_axis, start, outcome.output.shape[out_axis] - start)
    return not any(moved[start:]) and finite_share(later) == 1.0


def _disturbed(search: Search, values: Mapping[str, Any], axis: int, index: int) -> dict[str, Any]:
    """The same call with other numbers at one token of the main input, and of what follows it."""
    main = values[search.main]
    made = disturb(main, axis, index, search.frame.vocab)
    out: dict[str, Any] = {}
    for name, value in values.items():
        if value is main:
            out[name] = made
        elif search.choice.get(name) is SAME and isinstance(value, Tensor):
            out[name] = disturb(value, axis, index, search.frame.vocab)
        else:
            out[name] = value
    return out
