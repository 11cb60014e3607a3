"""Which finding follows from another one: its proof descends from the fault, and rests on what that disturbs.

Nothing that is folded is lost: the finding that it follows from says it in a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnscope.checks.lab import Lab
from attnscope.checks.registry import CHECKS, ROWS, disturbed_by, rests_on
from attnscope.diagnostic import Diagnostic

_RANK = {"error": 0, "warning": 1, "note": 2}
_ORDER = {row.code: place for place, row in enumerate(CHECKS)}


@dataclass(frozen=True)
class Judged:
    """A finding and the lab that proved it: of one attention (`path`), or of the whole target."""

    finding: Diagnostic
    lab: Lab

    @property
    def path(self) -> str:
        part = self.lab.subject.part
        return part.path if part is not None else ""

    @property
    def event(self) -> int | None:
        """The first step at the place that is blamed; None for what is no step: a declaration, a crash."""
        span = self.finding.span
        if span is None or self.lab.recording.error is not None:
            return None
        events = range(len(self.lab.lineage.events))
        return next((index for index in events if self.lab.span(index) == span), None)


def fold(judged: Sequence[Judged]) -> tuple[Diagnostic, ...]:
    """Findings without consequences, errors first, the most telling first; what follows stands in a note."""
    parents: dict[int, int] = {}
    for child, one in enumerate(judged):
        for parent, other in enumerate(judged):
            if parent == child or not follows(one, other):
                continue
            mutual = follows(other, one)
            if not mutual or _telling(other, parent) < _telling(one, child):
                parents[child] = parent
                break
    notes: dict[int, list[str]] = {}
    kept = [index for index in range(len(judged)) if index not in parents]
    for child in parents:
        top = _top(child, parents)
        if top is None:
            kept.append(child)
        else:
            notes.setdefault(top, []).append(_said(judged[child], judged[top]))
    shown = []
    for index in sorted(kept, key=lambda i: _telling(judged[i], i)):
        finding = judged[index].finding
        shown.append(replace(finding, notes=(*finding.notes, *dict.fromkeys(notes.get(index, ())))))
    return tuple(shown)


def follows(one: Judged, other: Judged) -> bool:
    """Whether `one` is a consequence of `other`."""
    if _RANK[other.finding.severity] > _RANK[one.finding.severity]:
        return False
    if one.path and one.path != other.path and other.path:
        return False  # of two attentions: each stands for itself
    row = ROWS.get(other.finding.code)
    if one.path and not other.path and row is not None and row.of != "whole":
        return False  # what was found on the whole explains nothing of one attention by itself
    if not rests_on(one.finding.code) & disturbed_by(other.finding.code):
        return False
    return one.path != other.path or _descends(one, other)


def _descends(one: Judged, other: Judged) -> bool:
    """Whether the evidence of `one` descends from the step that `other` blames.

    What is blamed and is no step, a declaration, comes before all of them; evidence in the outputs after all;
    a local one ends where the weights of its attention meet the values.
    """
    row = ROWS.get(one.finding.code)
    start, end = other.event, one.event
    if start is None or end is None or row is None or not row.local:
        return True
    lineage = one.lab.lineage
    uses = [found.found.used_by for found in one.lab.all_maps if found.found.used_by is not None]
    end = min((use for use in uses if use >= end), default=end)
    return start == end or bool(set(lineage.events[end].outputs) & lineage.offspring(start))


def _top(child: int, parents: dict[int, int]) -> int | None:
    """The finding that a chain of consequences ends at; None for a circle."""
    seen = {child}
    while child in parents:
        child = parents[child]
        if child in seen:
            return None
        seen.add(child)
    return child


def _telling(one: Judged, number: int) -> tuple[int, int, int]:
    return _RANK[one.finding.severity], _ORDER.get(one.finding.code, -1), number


def _said(child: Judged, parent: Judged) -> str:
    where = f" in `{child.path}`" if child.path and child.path != parent.path else ""
    whole = " of the whole" if parent.path and not child.path else ""
    return f"{child.finding.code}{where}{whole} may only follow from this: {child.finding.message}"
