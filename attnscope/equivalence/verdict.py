"""From outcomes to findings: what differs, by how much, from which line on."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from attnscope.comparison import Parting
from attnscope.diagnostic import Diagnostic, Label, Severity
from attnscope.equivalence import as301_different, as302_other_state
from attnscope.equivalence.calls import Calls
from attnscope.equivalence.experiments import Outcome, said
from attnscope.equivalence.lab import Lab
from attnscope.equivalence.sides import Side
from attnscope.equivalence.traces import Walk
from attnscope.loader.expressions import printable
from attnscope.schema import Span, Step


def constructor(sides: tuple[Side, Side], error: BaseException) -> Diagnostic:
    """One module cannot be made at all."""
    name = "A" if sides[0].built.error is error else "B"
    return Diagnostic(
        as301_different.CODE,
        "error",
        f"{name} raises {said(error)} when it is constructed, the other does not",
        _place(sides[0] if name == "A" else sides[1], error),
        label="raised here",
    )


def findings(
    calls: tuple[Calls, Calls],
    lab: Lab,
    outcomes: Sequence[Outcome],
    walks: tuple[Walk, Walk],
    parting: Parting | None,
    help_text: str,
) -> tuple[Diagnostic, ...]:
    """At most one finding for the function, one for the state, and one for each warning."""
    differing = [o for o in outcomes if o.differs]
    function = [o for o in differing if o.kind == "function"]
    state = [o for o in differing if o.kind == "state"]
    found = []
    if function:
        found.append(_function(calls, lab, function, walks, parting, help_text))
    if state:
        found.append(_state(calls, state, same=not function))
    for o in differing:
        if o.kind == "warning" and not function:
            # Which types and modes a module is meant for cannot be known, unless one was asked for.
            severity: Severity = "warning" if o.run.name == "training mode" else "note"
            found.append(Diagnostic(as301_different.CODE, severity, f"{o.run.name}: {o.say or o.run.result}"))
    return tuple(found)


def _function(
    calls: tuple[Calls, Calls],
    lab: Lab,
    outcomes: Sequence[Outcome],
    walks: tuple[Walk, Walk],
    parting: Parting | None,
    help_text: str,
) -> Diagnostic:
    worst = outcomes[0]
    error = worst.error[0] or worst.error[1]
    if error is not None:
        side = 0 if worst.error[0] is not None else 1
        message = f"{'AB'[side]} raises {said(error)}, {'BA'[side]} runs"
        span, label = _place(calls[side].side, error), "raised here"
    else:
        numbers = [o for o in outcomes if o.run.largest is not None and o.run.name.startswith("forward, B")]
        top = max(numbers, key=lambda o: o.run.largest or 0.0, default=worst)
        message = f"A and B are different functions: {_sentence(top)}"
        span, label = None, ""
    labels: list[Label] = []
    notes: list[str] = []
    if parting is not None:
        steps = [
            walk.rows[i] if i is not None else None
            for walk, i in zip(walks, (parting.a, parting.b), strict=True)
        ]
        notes.append(_parting(steps, parting))
        if span is None:
            places = [(s, n) for s, n in zip(steps, "AB", strict=True) if s is not None]
            if places:
                span, label = (
                    places[0][0].span,
                    f"the first numbers of {places[0][1]} that the other does not have",
                )
            labels = [
                Label(s.span, f"the first numbers of {n} that the other does not have") for s, n in places[1:]
            ]
    left = lab.plan.left()
    if left:
        shown = ", ".join(f"{x.side}'s `{printable(x.name)}` {list(x.shape)}" for x in left[:4])
        more = f" and {len(left) - 4} more" if len(left) > 4 else ""
        notes.append(f"not moved: {shown}{more}")
    evidence = [("run", "result"), *((o.run.name, o.run.result) for o in _telling(outcomes))]
    help_line = help_text
    if not help_line and left:
        help_line = "say with --map A.NAME=B.NAME which weights belong together"
    return Diagnostic(
        as301_different.CODE,
        "error",
        message,
        span,
        label,
        tuple(labels),
        tuple(notes),
        help_line,
        tuple(evidence),
    )


def _telling(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Of each kind of run the one that differs most, the kinds in order."""
    kinds: dict[str, Outcome] = {}
    for o in outcomes:
        kind = o.run.name.partition(",")[0]
        if kind not in kinds or (o.run.largest or 0.0) > (kinds[kind].run.largest or 0.0):
            kinds[kind] = o
    return list(kinds.values())[:6]


def _sentence(outcome: Outcome) -> str:
    """What one run showed: `with B 3, T 16 the output differs by 0.68 at batch 0, …`."""
    run = outcome.run
    if outcome.say:
        return outcome.say
    kind, _, size = run.name.partition(", ")
    if kind == "forward":
        subject = "" if run.result.startswith(("A ", "B ", "only ")) else "the output "
        return f"with {size} {subject}{run.result}"
    return f"{run.name} {run.result}"


def _parting(steps: Sequence[Step | None], parting: Parting) -> str:
    places = [
        f"{name} line {step.line} `{step.op}`" if step is not None else f"{name} has no further step"
        for name, step in zip("AB", steps, strict=True)
    ]
    text = f"first differs at {places[0]}, {places[1]}"
    if parting.heads:
        text += f", in head{'s' if len(parting.heads) > 1 else ''} {', '.join(map(str, parting.heads))}"
    return f"{text}: {parting.note}" if parting.note else text


def _state(calls: tuple[Calls, Calls], outcomes: Sequence[Outcome], same: bool) -> Diagnostic:
    first = outcomes[0]
    error = first.error[0] or first.error[1]
    span = None
    if error is not None:
        span = _place(calls[0 if first.error[0] is not None else 1].side, error)
    prefix = "A and B are the same function, but " if same else "A and B also keep other state: "
    evidence = [("run", "result"), *((o.run.name, o.run.result) for o in outcomes[:6])]
    return Diagnostic(
        as302_other_state.CODE,
        "error",
        f"{prefix}{first.say or first.run.result}",
        span,
        "raised here" if span is not None else "",
        evidence=tuple(evidence) if len(outcomes) > 1 else (),
    )


def _place(side: Side, error: BaseException) -> Span | None:
    """The last line of the user's own file that the traceback passes."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename == side.target.file]
    if not own or own[-1].lineno is None:
        return None
    last = own[-1]
    line = last.lineno or 1
    start = (last.colno or 0) + 1
    end = (last.end_colno or last.colno or 0) + 1
    return Span(last.filename, line, start, last.end_lineno or line, max(end, start + 1))
