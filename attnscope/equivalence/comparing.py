"""The whole comparison: construct, move the weights, run, find the first step that differs, judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from attnscope.comparison import ComparedSide, Comparison
from attnscope.crashes.frames import is_the_users
from attnscope.equivalence import experiments, verdict
from attnscope.equivalence.calls import Calls, make_calls
from attnscope.equivalence.decoding import decoding
from attnscope.equivalence.experiments import Outcome, said
from attnscope.equivalence.lab import Lab, telling, tolerance_of
from attnscope.equivalence.loading import loading
from attnscope.equivalence.moving import explanations, plans
from attnscope.equivalence.parameters import Table
from attnscope.equivalence.sides import Side, build_sides
from attnscope.equivalence.traces import Matching, Walk, match, part, walk
from attnscope.errors import UsageError
from attnscope.sandbox.state import global_state


def compare(
    a: str | nn.Module,
    b: str | nn.Module,
    *,
    args: Sequence[str] = (),
    args_a: Sequence[str] = (),
    args_b: Sequence[str] = (),
    inputs: Sequence[Any] = (),
    inputs_a: Sequence[Any] = (),
    inputs_b: Sequence[Any] = (),
    maps: Sequence[str] = (),
    causal: bool = True,
    layout: str | None = None,
    dtype: torch.dtype | None = None,
    seed: int = 123,
) -> Comparison:
    """Whether two modules are the same function, once the weights of A are in B.

    Args:
        a, b: modules, or TARGETs as on the command line.
        args: constructor arguments for each side that takes them, as `NAME=EXPR`; `args_a`, `args_b` for one.
        inputs: arguments of `forward` likewise, as texts or as values.
        maps: `A.NAME=B.NAME`, with slices and `.T`, for weights that names and layouts do not tell.
        causal: whether masks that have to be made are causal.
        layout: `btc`, `tbc` or `nc`, where the modules do not prove theirs.
        dtype: what is compared in (default: float64 where both can, else float32).
        seed: of weights and inputs.

    Raises:
        UsageError: a target, an argument, a map or an input is wrong, or the two cannot be compared at all.
    """
    with global_state(), _what_modules_raise():
        sides = build_sides(a, b, args, args_a, args_b, seed=seed)
        raised = [side.built.error for side in sides]
        if all(raised):
            raise UsageError(
                f"neither can be constructed: A raises {said(raised[0])}; B raises {said(raised[1])}"
            )
        if any(raised):
            return _not_constructed(sides, seed)
        calls = make_calls(
            sides, inputs, inputs_a, inputs_b, causal=causal, layout=layout, seed=seed, dtype=dtype
        )
        return _compared(calls, maps, dtype, seed)


@contextmanager
def _what_modules_raise() -> Iterator[None]:
    """Outside forward a module may raise too: a `train` of its own, or one that is a part of itself."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if not isinstance(error, RecursionError) and not is_the_users(error):
            raise
        raise UsageError(
            f"they cannot be compared: outside forward one raises {said(error)}",
            "look at each with attnscope check",
        ) from error


def _not_constructed(sides: tuple[Side, Side], seed: int) -> Comparison:
    compared = [
        ComparedSide(
            s.label,
            s.info(seed),
            s.info(seed).parameters,
            0,
            0,
            None,
            said(s.built.error) if s.built.error else "",
        )
        for s in sides
    ]
    error = sides[0].built.error or sides[1].built.error
    assert error is not None
    finding = verdict.constructor(sides, error)
    return Comparison(compared[0], compared[1], (finding,))


def _compared(
    calls: tuple[Calls, Calls], maps: Sequence[str], dtype: torch.dtype | None, seed: int
) -> Comparison:
    for c in calls:
        if c.inputs.error is not None and c.inputs.doubt:
            raise UsageError(f"{c.side.name}: {c.inputs.doubt}")
        _materialize(c)
    lab, native = _lab(calls, maps, dtype, seed)
    outcomes = [native]
    if not any(native.error):
        if native.run.held is None:
            _both_raise(lab)
        outcomes += list(experiments.every(lab, _more))
    differing = [o for o in outcomes if o.differs]
    shown = next((o for o in differing if o.call or o.calls), None)
    walks, matching = _walks(lab, shown)
    parting = part(*walks, matching) if shown is not None and shown.kind == "function" else None
    help_text = ""
    if any(o.kind == "function" and o.run.name.startswith("forward") for o in differing):
        help_text = _explained(lab, calls, maps)
    findings = verdict.findings(calls, lab, outcomes, walks, parting, help_text)
    done = [o.run for o in outcomes]
    function = [r for r in done if r.name.startswith("forward, B") and r.largest is not None]
    sides = [_side(c, w, seed, o) for c, w, o in zip(calls, walks, _raised(outcomes), strict=True)]
    return Comparison(
        sides[0],
        sides[1],
        findings,
        lab.plan.moved(),
        tuple(lab.plan.neutral),
        lab.plan.left(),
        lab.plan.layout,
        tuple(done),
        matching.pairs,
        parting,
        max((r.largest or 0.0 for r in function), default=None),
        lab.tolerance,
        tuple(_notes(calls)),
    )


def _materialize(calls: Calls) -> None:
    """Lazy layers get their shapes from a first call."""
    module = calls.side.module
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        args, kwargs = calls.at(calls.batch, calls.length, None)
        calls.run(module, args, kwargs)


def _more(lab: Lab) -> Iterator[Outcome]:
    yield from decoding(lab)
    yield from loading(lab)


def _lab(
    calls: tuple[Calls, Calls], maps: Sequence[str], dtype: torch.dtype | None, seed: int
) -> tuple[Lab, Outcome]:
    """The lab with the first plan that makes both equal, else the usual one; and how both run as they are."""
    tables = Table(calls[0].side.module), Table(calls[1].side.module)
    vector, own = telling(tables[0], seed), tables[1].vector()
    heads = calls[0].side.heads or calls[1].side.heads, calls[1].side.heads or calls[0].side.heads
    first: Lab | None = None
    best: tuple[Lab, Outcome] | None = None
    for plan in plans(*tables, maps, heads, calls[0].side.groups or heads[0]):
        lab = Lab(*calls, plan, vector, own, dtype, tolerance_of(dtype, True))
        if first is None:
            first = lab
            native = experiments.own_dtype(lab, dtype)
            best = lab, native
            if native.differs and any(native.error):
                return best
            if dtype is None:
                lab.dtype = _double(lab)
                lab.tolerance = tolerance_of(lab.dtype, _singles(lab))
        else:
            lab.dtype, lab.tolerance = first.dtype, first.tolerance
        if _equal(lab):
            return lab, experiments.own_dtype(lab, dtype)
    assert best is not None and first is not None
    return first, best[1]


def _double(lab: Lab) -> torch.dtype | None:
    """float64 where both run in it."""
    try:
        modules = lab.modules(torch.float64)
        results = lab.both(modules, lab.batch, lab.length, dtype=torch.float64)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
    return torch.float64 if all(r.ran for r in results) else None


def _singles(lab: Lab) -> bool:
    """Whether a step of either computes in less than float64."""
    if lab.dtype is not torch.float64:
        return True
    for calls, module in zip(lab.sides, lab.modules(), strict=True):
        args, kwargs = calls.at(1, min(2, lab.length), lab.dtype)
        seen = walk(calls, module, args, kwargs)
        low = {"float32", "float16", "bfloat16"}
        if any(info.dtype in low for step in seen.rows for info in step.outputs):
            return True
    return False


def _equal(lab: Lab) -> bool:
    try:
        one, two = lab.both(lab.modules(), lab.batch, lab.length)
    except RuntimeError:
        return False
    return one.ran and two.ran and lab.gap(one, two).equal


def _both_raise(lab: Lab) -> None:
    one, two = lab.both(lab.modules(native=True), lab.batch, lab.length, own=True)
    if one.error is not None and two.error is not None:
        raise UsageError(
            f"neither can be called: A raises {said(one.error)}; B raises {said(two.error)}",
            "give --input, or see what attnscope check says",
        )


def _explained(lab: Lab, calls: tuple[Calls, Calls], maps: Sequence[str]) -> str:
    """The known layout under which two modules that differ would agree."""
    heads = calls[0].side.heads or calls[1].side.heads, calls[1].side.heads or calls[0].side.heads
    found = explanations(lab.plan.a, lab.plan.b, maps, heads, calls[0].side.groups or heads[0])
    for number, plan in enumerate(found):
        if number > 40:
            break
        if plan.layout and plan.key != lab.plan.key and _equal(replace(lab, plan=plan)):
            return f"the two agree when {plan.layout}"
    return ""


def _walks(lab: Lab, shown: Outcome | None) -> tuple[tuple[Walk, Walk], Matching]:
    """Both traces of the call that shows the difference, else of a short usual call."""
    batch, length = min(2, lab.batch), min(5, lab.length)
    own = shown is not None and shown.own
    dtype = shown.dtype if shown is not None else None
    if shown is not None and shown.call is not None:
        batch, length = shown.call
        if length > 5:
            batch, length = _smaller(lab, shown, batch, length)
    walks = []
    for number, (calls, module) in enumerate(zip(lab.sides, lab.modules(dtype, native=own), strict=True)):
        if shown is not None and shown.calls is not None:
            args, kwargs = shown.calls[number]
        else:
            args, kwargs = calls.at(batch, length, None if own else dtype or lab.dtype)
        walks.append(walk(calls, module, args, kwargs))
    pair = walks[0], walks[1]
    return pair, match(*pair)


def _smaller(lab: Lab, shown: Outcome, batch: int, length: int) -> tuple[int, int]:
    """A smaller call that shows the difference too: shorter traces are easier to read."""
    for size in ((min(2, batch), 5), (batch, 5), (min(2, batch), 7)):
        modules = lab.modules(shown.dtype, native=shown.own)
        one, two = lab.both(modules, *size, dtype=shown.dtype, own=shown.own)
        if any(shown.error):
            if one.ran != two.ran:
                return size
        elif one.ran and two.ran and not lab.gap(one, two).equal:
            return size
    return batch, length


def _raised(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    for outcome in outcomes:
        if outcome.kind == "function" and any(outcome.error):
            return tuple(said(e) if e else "" for e in outcome.error)  # type: ignore[return-value]
    return "", ""


def _side(calls: Calls, seen: Walk, seed: int, raised: str) -> ComparedSide:
    info = calls.side.info(seed)
    module = calls.side.module
    return ComparedSide(
        calls.side.label,
        info,
        info.parameters,
        sum(1 for _ in module.buffers()),
        len(seen.rows),
        seen.trace(info),
        raised,
    )


_MASK_SAYS = {"allowed": "True = may attend", "blocked": "True = blocked", "additive": "added to the scores"}


def _notes(calls: tuple[Calls, Calls]) -> Iterator[str]:
    said_of = [c.inputs.guesses for c in calls]
    if said_of[0] and said_of[0] == said_of[1]:
        yield f"both are called with {said_of[0]}"
    else:
        yield from (
            f"{c.side.name} is called with {text}" for c, text in zip(calls, said_of, strict=True) if text
        )
    for c in calls:
        if c.inputs.mask:
            words = _MASK_SAYS.get(c.inputs.mask, c.inputs.mask)
            yield f"{c.side.name} is given a mask in its own convention: {words}"
