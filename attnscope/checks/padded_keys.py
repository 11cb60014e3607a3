"""What AS221 says of a run with padding: which attention gives padded keys weight, and why it should not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnscope.checks.attentions import owner_of
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL, is_lower, mask_of, visible
from attnscope.checks.maps import Map
from attnscope.checks.padding import (
    Padded,
    Seen,
    attentions,
    goes_nowhere,
    padded_runs,
    reached,
    weight_on,
)
from attnscope.checks.padding_felt import felt, masked_by_others
from attnscope.checks.places import counted, listed, num
from attnscope.checks.sequences import kinds
from attnscope.checks.severity import Kind, severity
from attnscope.diagnostic import Diagnostic, Label, Tried
from attnscope.schema import Span


def seen_padding(lab: Lab) -> Iterator[Diagnostic | Tried]:
    """Of a whole target: each sequence that it tells the padding of, and each attention over it."""
    if lab.recording.error is not None or not lab.all_maps:
        return
    judged: set[str] = set()
    for padded in padded_runs(lab):
        seen = attentions(padded)
        if not seen or padded.name in judged:
            continue
        row, findings = _judged(padded, seen)
        if row is None:
            continue
        judged.add(padded.name)
        yield row
        yield from findings


def _judged(padded: Padded, seen: dict[int, Seen]) -> tuple[Tried | None, list[Diagnostic]]:
    """What was found; no row where what was made has nothing to do with padding."""
    name = f"padding of `{padded.name}`"
    blind = sum(one == "hidden" for one in seen.values())
    masked = {n for n in seen if padded.marks & reached(padded.lab, padded.lab.all_maps[n])}
    shows: set[Kind] = {"others hide"} if blind else set()
    if not padded.by and goes_nowhere(padded):
        shows |= {"thrown away"}
    wrong = [
        n
        for n, one in seen.items()
        if one != "hidden"
        and severity("padding seen", _with(shows, n in masked))
        and not _is_told(padded, padded.lab.all_maps[n])
    ]
    shown = f"{blind} of {counted(len(seen), 'attention')} over `{padded.name}` hide it"
    if not wrong:
        return (Tried(name, shown, True), []) if blind else (None, [])
    moved = felt(padded)
    if moved is None:
        return Tried(name, f"not tried: {shown}, and it could not be changed", False, status="not tried"), []
    if moved <= padded.lab.tolerance and not any(seen[n] == "inverted" and n in masked for n in wrong):
        return Tried(name, f"{shown}; no output moves with it", True), []
    brought = masked_by_others(padded, set(wrong) - masked) if not set(wrong) <= masked else set()
    wrong = [n for n in wrong if n not in brought]
    if not wrong:
        return Tried(name, f"{shown}; a mask that may be handed over hides it from the others", True), []
    return Tried(name, shown, False), _findings(padded, seen, wrong, masked, moved)


def _is_told(padded: Padded, one: Map) -> bool:
    """Whether another code says it: the mask of another sequence lies here, or none at all in a decoder,
    which hides what comes later."""
    lab = padded.lab
    seen = visible(one) > SMALL
    if is_lower(seen):
        return True
    decoder = padded.name == lab.main and "cross" in kinds(lab).values()
    return decoder and one.square and bool(np.triu(seen, 1).any())


def _with(shows: set[Kind], masked: bool) -> set[Kind]:
    return shows | ({"scores"} if masked else set())


def _findings(
    padded: Padded, seen: dict[int, Seen], wrong: list[int], masked: set[int], moved: float
) -> list[Diagnostic]:
    """One for each place and kind of fault; equal layers stand in a note."""
    lab = padded.lab
    groups: dict[tuple[Span | None, Seen, bool], list[Map]] = {}
    for number in wrong:
        one = lab.all_maps[number]
        apply = mask_of(one, lab)[1] if number in masked else None
        span = lab.span(apply if apply is not None else one.event)
        groups.setdefault((span, seen[number], number in masked), []).append(one)
    sound = [lab.all_maps[n] for n, one in seen.items() if one == "hidden"]
    return [
        _finding(padded, span, kind, met, maps, sound, moved) for (span, kind, met), maps in groups.items()
    ]


def _finding(
    padded: Padded, span: Span | None, seen: Seen, met: bool, maps: list[Map], sound: list[Map], moved: float
) -> Diagnostic:
    lab, name = padded.lab, padded.name
    made = lab.span(padded.event)
    if seen == "inverted" and met:
        message = f"the mask of `{name}`'s padding is inverted: padding alone is seen"
        label, help_ = (
            "all keys but the padded ones are blocked here",
            "turn the comparison round, or the mask",
        )
    elif met:
        message = f"the mask of `{name}`'s padding does not reach its keys: padding is seen"
        label = "padded keys keep their weight here"
        help_ = "a mask of keys [B, S] is broadcast along the queries: `mask[:, None, None, :]`"
    else:
        message = f"padding of `{name}` is seen here: no mask of it is applied"
        label = "padded keys have weight here"
        help_ = f"hand the mask of `{name}`'s padding to this attention"
    labels: tuple[Label, ...] = ()
    if made is not None and made != span:
        labels = (Label(made, f"padding of `{name}` is told apart here"),)
    notes = [
        f"the largest weight on a padded key is {num(max(weight_on(padded, one) for one in maps))}",
    ]
    if moved == float("inf"):
        notes.append("outputs of tokens that are no padding are NaN")
    elif moved:
        notes.append(f"outputs move by {num(moved)} of the largest output when padded tokens are others")
    paths = list(dict.fromkeys(_path(lab, one) for one in maps))
    others = listed(list(dict.fromkeys(path for path in (_path(lab, one) for one in sound) if path)))
    if others:
        notes.append(f"{others} hide it")
    if len(paths) > 1:
        notes.append(f"the same in {listed(paths[1:])}")
    return Diagnostic("AS221", "error", message, span, label, labels, tuple(notes), help_, module=paths[0])


def _path(lab: Lab, one: Map) -> str:
    """The module of an attention, as a whole target calls it."""
    return lab.recording.path_of(owner_of(lab, one))
