"""All experiments on a target: on the whole for what is of the whole, on each of its attentions by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile

from attnscope.checks import failure, run_checks
from attnscope.checks.attentions import Owned, caught, distinct, inside, owned_by, part_subject, path_of
from attnscope.checks.consequences import Judged
from attnscope.checks.lab import DOUBLE_AT_MOST, Lab
from attnscope.checks.leaks import Leak, leak_of
from attnscope.checks.maps import Map
from attnscope.checks.phases import half_notes, run_phases
from attnscope.checks.places import counted, listed
from attnscope.checks.registry import CHECKS, ROWS, Of
from attnscope.checks.roles import projections
from attnscope.checks.sequences import tell_apart
from attnscope.checks.switches import MASKS, handed, switched
from attnscope.diagnostic import Diagnostic, Tried
from attnscope.strict import passed_over

Progress = Callable[[str], None]
ALONE: tuple[Of, ...] = ("attention", "both")
WHOLE: tuple[Of, ...] = ("whole", "both")


@dataclass
class Judgement:
    """What was found and tried; `complete` is False where something raised inside or was cut off."""

    findings: list[Judged] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return all(one.status != "not tried" for one in self.tried)


def judge(lab: Lab, wanted: Collection[str] | None, progress: Progress) -> Judgement:
    """Phases first; where forward runs, every check on what it speaks of."""
    made = Judgement(tried=[Tried("construct", "runs", True)])
    progress("forward, backward, move, state_dict")
    _take(made, lab, run_phases(lab))
    if lab.own.error is not None:
        return made
    tell_apart(lab)
    owners = owned_by(lab)
    if not any(owners):
        _inline(made, lab, list(run_checks(lab, wanted, progress)), lab.all_maps)
    else:
        _whole(made, lab, wanted, progress)
        if 0 in owners:
            lab.owned = frozenset(one.number for one in owners[0])
            said = list(run_checks(lab, wanted, progress, ALONE[:1]))
            lab.owned = None
            _inline(made, lab, said, owners[0])
        _parts(made, lab, wanted, progress, distinct(lab, owners))
    _switches(made, lab, wanted, progress)
    made.notes += half_notes(lab) if not lab.spent else []
    made.notes += _notes(lab)
    return made


def _switches(made: Judgement, lab: Lab, wanted: Collection[str] | None, progress: Progress) -> None:
    """What is a fault only where a switch of the constructor is the other way round."""
    known = {(one.finding.code, one.finding.span) for one in made.findings}
    codes = MASKS if wanted is None else MASKS & set(wanted)
    for said, other in chain(switched(lab), handed(lab)):
        if isinstance(other, Tried):
            made.tried.append(other)
            continue
        found = [one for one in run_checks(other, codes, progress) if isinstance(one, Diagnostic)]
        found = [one for one in found if one.severity == "error" and (one.code, one.span) not in known]
        why = f"masks, with {counted(len(found), 'fault')}" if found else "masks, and nothing was found"
        made.tried.append(Tried(f"with `{said}`", why, not found))
        for one in found:
            note = f"so with `{said}`"
            made.findings.append(Judged(_placed(other, replace(one, notes=(*one.notes, note))), other))


def _take(made: Judgement, lab: Lab, said: Iterable[Diagnostic | Tried]) -> None:
    part = lab.subject.part
    path = part.path if part is not None else ""
    for one in said:
        if isinstance(one, Tried):
            made.tried.append(replace(one, module=path))
        else:
            placed = replace(one, module=path) if path else _placed(lab, one)
            made.findings.append(Judged(placed, lab))


def _inline(made: Judgement, lab: Lab, said: Iterable[Diagnostic | Tried], maps: Sequence[Map]) -> None:
    """What was said of attentions that the target has no module for: each is asked by itself; what
    is true of some names the layers that their queries and keys come from."""
    for each in said:
        if isinstance(each, Tried) or len(maps) < 2 or ROWS[each.code].of != "attention":
            _take(made, lab, [each])
            continue
        found: dict[Diagnostic, tuple[Diagnostic, list[Map]]] = {}
        for one in maps:
            lab.owned = frozenset({one.number})
            for again in run_checks(lab, {each.code}, None, ALONE[:1]):
                if isinstance(again, Diagnostic):
                    alike = replace(again, notes=(), evidence=())
                    found.setdefault(alike, (again, []))[1].append(one)
        lab.owned = None
        apart = [told_apart(lab, again, own) for again, own in found.values() if len(own) < len(maps)]
        _take(made, lab, apart or [each])


def told_apart(lab: Lab, finding: Diagnostic, own: Sequence[Map]) -> Diagnostic:
    """A finding of some of a module's attentions, with the paths of their projections."""
    named = list(dict.fromkeys(name for one in own for name in _layers(lab, one, own)))
    if not named:
        return finding
    note = f"this is the attention of {listed(named)}"
    return replace(
        finding, notes=(*finding.notes, note), module=finding.module or (named[0] if len(named) == 1 else "")
    )


def _layers(lab: Lab, one: Map, own: Sequence[Map]) -> list[str]:
    """The module of an attention's projections, or its parameters where others have theirs there, too."""
    names = sorted(projections(lab, one))
    path = _common(name.rpartition(".")[0] for name in names)
    rest = (name for other in lab.all_maps if other not in own for name in projections(lab, other))
    shared = not path or any(f"{name}.".startswith(f"{path}.") for name in rest)
    return names if shared else [path]


def _common(paths: Iterable[str]) -> str:
    """The path that all of these begin with."""
    split = [path.split(".") for path in paths]
    same = takewhile(lambda names: len(set(names)) == 1, zip(*split, strict=False))
    return ".".join(names[0] for names in same)


def _placed(lab: Lab, finding: Diagnostic) -> Diagnostic:
    """A finding of the whole, with the path of the module in which the step that it blames stands, unless it
    names one: a line serves several."""
    if finding.module:
        return finding
    event = Judged(finding, lab).event
    leak = leak_of(lab) if lab.causal and event is not None else Leak("none")
    if leak.event is not None and lab.span(leak.event) == finding.span:
        event = leak.event  # of several steps at one place
    path = lab.steps.owner(lab.recording.events[event].call) if event is not None else ""
    if (
        not path
        and leak.map is not None
        and finding.span in {lab.span(index) for index in (leak.event, leak.mask, leak.map.event)}
    ):
        return told_apart(lab, finding, [leak.map])
    return replace(finding, module=path)


def _whole(made: Judgement, lab: Lab, wanted: Collection[str] | None, progress: Progress) -> None:
    said = list(run_checks(lab, wanted, progress, WHOLE))
    # That nothing of a kind was found on the whole means nothing where each attention is asked by itself.
    asked = {row.name for row in CHECKS if row.of == "both" and row.quiet}
    _take(made, lab, [one for one in said if not (isinstance(one, Tried) and one.held and one.name in asked)])


def _parts(
    made: Judgement, lab: Lab, wanted: Collection[str] | None, progress: Progress, owned: list[Owned]
) -> None:
    given = caught(lab, [one.call for one in owned])
    for one in owned:
        path = path_of(lab.recording, one.call)
        progress(path)
        if one.call not in given:
            why = "it was not called again with the same input"
            made.tried.append(Tried("attention", why, False, path, "not tried"))
            continue
        try:
            part = Lab(part_subject(lab, one, given[one.call]), lab.budget)
            _part(made, part, wanted, progress)
        except KeyboardInterrupt:
            raise
        except Exception as error:
            passed_over(error)
            made.tried.append(replace(failure("attention", error), module=path))
        _explained(made, lab, one)


def _part(made: Judgement, lab: Lab, wanted: Collection[str] | None, progress: Progress) -> None:
    part = lab.subject.part
    assert part is not None
    if lab.own.error is not None or lab.recording.error is not None:
        error = lab.own.error or lab.recording.error
        why = f"called by itself it raises {type(error).__name__}"
        made.tried.append(Tried("attention", why, False, part.path, "not tried"))
        return
    if part.also:
        made.tried.append(Tried("equal layers", listed(list(part.also)), True, part.path))
    before = len(made.findings)
    _take(made, lab, run_checks(lab, wanted, progress, ALONE))
    if part.also:
        for index in range(before, len(made.findings)):
            finding = made.findings[index].finding
            note = f"the same in {listed(list(part.also))}"
            made.findings[index] = replace(
                made.findings[index], finding=replace(finding, notes=(*finding.notes, note))
            )


def _explained(made: Judgement, lab: Lab, one: Owned) -> None:
    """What was found on the whole, at a step inside an attention that sees all keys by right, is none."""
    if one.kind == "self":
        return
    calls = inside(lab.recording, one.call)
    for judged in list(made.findings):
        if judged.path or judged.finding.code != "AS201" or judged.event is None:
            continue
        if lab.recording.events[judged.event].call in calls:
            made.findings.remove(judged)


def _notes(lab: Lab) -> list[str]:
    notes = []
    if lab.recording.error is None and not lab.all_maps:
        notes.append("no attention was found in this run: its weights could not be looked at")
    notes += lab.recording.said_missed
    if lab.garbage:
        names = ", ".join(f"`{name}`" for name in lab.garbage[:3])
        notes.append(f"{names} were never initialised; experiments put numbers there")
    if not lab.precise:
        why = "is too large for" if lab.size > DOUBLE_AT_MOST else "does not run in"
        notes.append(f"the module {why} float64: experiments were done in its own type")
    if lab.main is None:
        notes.append("no argument with tokens was found: experiments with tokens were left out")
    return notes
