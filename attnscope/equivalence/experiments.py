"""What is done with both modules: forward, gradients, training mode, other dtypes, another device, state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnscope.comparison import ComparedRun
from attnscope.equivalence.calls import LENGTHS, Calls, Result
from attnscope.equivalence.differences import TOLERANCE, Gap, gap, place
from attnscope.equivalence.lab import Lab
from attnscope.equivalence.parameters import Table
from attnscope.equivalence.traces import walk
from attnscope.loader.expressions import printable, words
from attnscope.loader.importing import run_user_code
from attnscope.ops.catalog import FACTORIES
from attnscope.sandbox.guard import walk as walk_modules
from attnscope.sandbox.tensors import tree_map

Kind = Literal["function", "state", "warning"]


@dataclass
class Outcome:
    """One experiment. `kind` says what a difference means: another function, or another state around it.

    `call` is the call to trace for it: batch and length; `calls` has both sides' own arguments.
    `own`: the modules and inputs were as given; else `dtype` (None: the lab's) says what they were cast to.
    """

    run: ComparedRun
    kind: Kind = "function"
    say: str = ""
    error: tuple[BaseException | None, BaseException | None] = (None, None)
    call: tuple[int, int] | None = None
    own: bool = False
    dtype: torch.dtype | None = None
    calls: tuple[Any, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return self.run.held is False


def said(error: BaseException | None) -> str:
    """`RuntimeError: shape mismatch`, on one line."""
    if error is None:
        return "runs"
    text = printable(words(error).partition("\n")[0], 200)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def number(value: float) -> str:
    """`3.1e-07`, `0.25`, `inf`."""
    if value == 0:
        return "0"
    return f"{value:.2g}" if 1e-3 <= value < 1e4 else f"{value:.1e}"


def judged(name: str, found: Gap) -> ComparedRun:
    """A run whose outputs were compared."""
    if found.shapes:
        return ComparedRun(name, found.shapes, False, None, found.tolerance)
    if found.equal:
        return ComparedRun(
            name, f"equal, largest difference {number(found.largest)}", True, found.largest, found.tolerance
        )
    what = f"differs by {number(found.largest)}"
    if found.nan:
        what = f"{found.nan} gives no finite number"
    return ComparedRun(
        name, f"{what} at {place(found.where)}", False, found.largest, found.tolerance, found.where
    )


def compared(name: str, lab: Lab, one: Result, two: Result, tolerance: float | None = None) -> Outcome:
    """A run of both, whether they returned or raised."""
    if one.ran and two.ran:
        found = lab.gap(one, two, tolerance)
        return Outcome(judged(name, found))
    if not one.ran and not two.ran:
        same = type(one.error) is type(two.error)
        text = f"both raise {type(one.error).__name__}" if same else "both raise"
        return Outcome(ComparedRun(name, text, None))
    side, error = ("A", one.error) if not one.ran else ("B", two.error)
    return Outcome(
        ComparedRun(name, f"{side} raises {said(error)}", False),
        say=f"{side} raises {said(error)}",
        error=(one.error, two.error),
    )


def sizes(lab: Lab) -> list[tuple[int, int]]:
    """Batches and lengths to run, the largest first."""
    longest = lab.length
    lengths = [longest, *(n for n in reversed(LENGTHS) if n < longest)]
    batches = list(dict.fromkeys((lab.batch, 1)))
    return [(batch, length) for length in lengths for batch in batches]


def own_dtype(lab: Lab, dtype: torch.dtype | None) -> Outcome:
    """Both in the dtype that was asked for, else as they are constructed."""
    try:
        modules = lab.modules(dtype, native=dtype is None)
    except RuntimeError as error:
        return Outcome(ComparedRun("forward", f"cannot be cast: {said(error)}", None))
    used = dtype or _float(modules[0])
    one, two = lab.both(modules, lab.batch, lab.length, grad=True, dtype=dtype, own=dtype is None)
    name = str(used).removeprefix("torch.")
    outcome = compared(f"forward, {name}", lab, one, two, TOLERANCE.get(used, 1e-5))
    outcome.call = (lab.batch, lab.length)
    outcome.own, outcome.dtype = dtype is None, dtype
    return outcome


def _float(module: nn.Module) -> torch.dtype:
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def forward(lab: Lab) -> Iterator[Outcome]:
    """Every batch and length on one pair of modules, so that what a call leaves behind shows in the next."""
    modules = lab.modules()
    failed: set[str] = set()
    for batch, length in sizes(lab):
        one, two = lab.both(modules, batch, length)
        outcome = compared(f"forward, B {batch}, T {length}", lab, one, two)
        outcome.call = (batch, length)
        if not one.ran or not two.ran:
            failed.add(outcome.run.result)
        yield outcome
    again = lab.modules()
    one, two = lab.both(again, lab.batch, lab.length, seed=2)
    other = lab.both(again, lab.batch, lab.length, seed=3)
    yield _repeated(lab, (one, other[0]), (two, other[1]))


def _repeated(lab: Lab, a: tuple[Result, Result], b: tuple[Result, Result]) -> Outcome:
    """The same call twice, with other random numbers."""
    name = "the same call twice"
    if not all(r.ran and r.tensors for r in (*a, *b)):
        return Outcome(ComparedRun(name, "cannot be done", None))
    gaps = [gap(x.tensors[0], y.tensors[0], lab.tolerance) for x, y in (a, b)]
    held = [g.equal for g in gaps]
    if all(held):
        return Outcome(ComparedRun(name, "both give the same again", True))
    if not any(held):
        return Outcome(ComparedRun(name, "neither gives the same again", None))
    side = "A" if not held[0] else "B"
    largest = gaps[0 if side == "A" else 1].largest
    text = f"{side} gives another result, by {number(largest)}, in evaluation mode"
    return Outcome(ComparedRun(name, text, False, largest, lab.tolerance), say=text)


def gradients(lab: Lab) -> Iterator[Outcome]:
    """Gradients of a random projection of the output, for the input and the moved parameters."""
    generator = torch.Generator().manual_seed(5)
    for length in dict.fromkeys((lab.length, min(5, lab.length))):
        modules = lab.modules()
        for module in modules:
            for p in module.parameters():
                p.requires_grad_(True)
        name = f"gradients, B {lab.batch}, T {length}"
        one, two = lab.both(modules, lab.batch, length, grad=True)
        if not (one.ran and two.ran and one.tensors and two.tensors):
            outcome = compared(name, lab, one, two)
            outcome.call = (lab.batch, length)
            yield outcome
            continue
        if one.tensors[0].shape != two.tensors[0].shape:
            continue
        direction = torch.randn(one.tensors[0].shape, generator=generator, dtype=torch.float64)
        errors = [
            _backward(calls, result, direction) for calls, result in zip(lab.sides, (one, two), strict=True)
        ]
        if any(errors):
            yield compared(name, lab, Result(error=errors[0]), Result(error=errors[1]))
            continue
        yield Outcome(_gradient_gap(lab, modules, (one, two), name))


def _backward(calls: Calls, result: Result, direction: Tensor) -> BaseException | None:
    output = result.tensors[0]
    if not output.requires_grad:
        return None
    finite = torch.where(output.detach().isfinite(), direction.to(output.dtype), 0.0)
    try:
        run_user_code(calls.side.environment, partial(torch.autograd.backward, output, finite))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


def _gradient_gap(
    lab: Lab, modules: tuple[nn.Module, nn.Module], results: tuple[Result, Result], name: str
) -> ComparedRun:
    mains = [
        None if r.main is None or r.main.grad is None else calls.to_canonical(r.main.grad)
        for calls, r in zip(lab.sides, results, strict=True)
    ]
    worst = Gap(0.0, lab.tolerance)
    of = ""
    if mains[0] is not None and mains[1] is not None and mains[0].shape == mains[1].shape:
        worst = gap(mains[0], mains[1], lab.tolerance * 10)
        of = "the input"
    elif (mains[0] is None) != (mains[1] is None):
        side = "A" if mains[0] is None else "B"
        return ComparedRun(name, f"{side} gives the input no gradient", False)
    if worst.equal:
        tables = Table(modules[0]), Table(modules[1])
        ga, gb = tables[0].gradient(), lab.plan.pulled(tables[1].gradient())
        mask = lab.plan.compared
        ga, gb = torch.where(mask, ga, 0.0), torch.where(mask, gb, 0.0)
        for p in tables[0].params:
            found = gap(ga[p.flat], gb[p.flat], lab.tolerance * 10)
            if not found.equal:
                which = _silent(ga[p.flat], gb[p.flat])
                return ComparedRun(
                    name,
                    f"of `{p.name}`: {which or 'differs by ' + number(found.largest)}",
                    False,
                    found.largest,
                    found.tolerance,
                )
            worst = max(worst, found, key=lambda g: g.largest)
        return ComparedRun(
            name, f"equal, largest difference {number(worst.largest)}", True, worst.largest, worst.tolerance
        )
    return ComparedRun(
        name,
        f"of {of}: differs by {number(worst.largest)}",
        False,
        worst.largest,
        worst.tolerance,
        worst.where,
    )


def _silent(a: Tensor, b: Tensor) -> str:
    """Where one side has no gradient at all."""
    zero = [bool((g == 0).all()) for g in (a, b)]
    return f"{'A' if zero[0] else 'B'} has none" if zero[0] != zero[1] else ""


def training(lab: Lab) -> Outcome:
    """In training mode: equal, or at random in both."""
    name = "training mode"
    modules = lab.modules()
    for module in modules:
        module.train()
    results = [lab.both(modules, lab.batch, lab.length, seed=seed) for seed in (2, 3)]
    flat = [r for pair in results for r in pair]
    if not all(r.ran and r.tensors for r in flat):
        outcome = compared(name, lab, *results[0])
        outcome.kind = "warning"
        return outcome
    still = [gap(results[0][i].tensors[0], results[1][i].tensors[0], lab.tolerance).equal for i in (0, 1)]
    if not all(still):
        if any(still):
            side = "B" if still[0] else "A"
            text = f"{side} draws random numbers, {'A' if side == 'B' else 'B'} does not"
            return Outcome(ComparedRun(name, text, False), kind="warning", say=f"in training {text}")
        found = lab.gap(*results[0])
        text = (
            "equal with the same random numbers" if found.equal else "both draw random numbers: not compared"
        )
        return Outcome(ComparedRun(name, text, True if found.equal else None))
    return Outcome(judged(name, lab.gap(*results[0])), kind="function")


def other_dtypes(lab: Lab) -> Iterator[Outcome]:
    """In half precision: whether both run and give finite numbers."""
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        try:
            modules = lab.modules(dtype)
            one, two = lab.both(modules, lab.batch, lab.length, dtype=dtype)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            yield Outcome(ComparedRun(f"forward, {name}", f"cannot be cast: {said(error)}", None))
            continue
        missing = [
            r.error for r in (one, two) if r.error is not None and "not implemented for" in words(r.error)
        ]
        if missing:
            continue
        outcome = compared(f"forward, {name}", lab, one, two, TOLERANCE[dtype])
        outcome.kind = "warning"
        outcome.call, outcome.dtype = (lab.batch, lab.length), dtype
        yield outcome


def device(lab: Lab) -> Outcome | None:
    """Moved to another device (PyTorch's `meta`): a tensor that does not move with the module raises."""
    name = "moved to another device"
    if not any(_may_stay(calls, module) for calls, module in zip(lab.sides, lab.modules(), strict=True)):
        return Outcome(ComparedRun(name, "everything moves with both", True))
    results = []
    for calls, module in zip(lab.sides, lab.modules(native=True), strict=True):
        try:
            moved = run_user_code(calls.side.environment, partial(module.to, "meta"))
            args, kwargs = calls.at(lab.batch, lab.length, None)
            args, kwargs = tree_map(lambda t: t.to("meta"), args), tree_map(lambda t: t.to("meta"), kwargs)
            results.append(calls.run(moved, args, kwargs))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            results.append(Result(error=error))
    stuck = [r.error is not None and _about_devices(r.error) for r in results]
    if stuck[0] == stuck[1]:
        if not any(r.error for r in results):
            return Outcome(ComparedRun(name, "both run", True))
        return None
    if results[1 if stuck[0] else 0].error is not None:
        return None
    side = "A" if stuck[0] else "B"
    text = f"{side} raises {said(results[0].error or results[1].error)}"
    return Outcome(
        ComparedRun(name, text, False),
        kind="state",
        say=f"moved to another device, {text}",
        error=(results[0].error, results[1].error),
    )


_FACTORIES = FACTORIES | {"logspace", "randint", "tensor", "tril_indices"}


def _may_stay(calls: Calls, module: nn.Module) -> bool:
    """Whether a tensor is a plain attribute, or is made in a call without a device.

    Only then the other device is tried: on `meta` PyTorch loads seconds' worth of its compiler.
    """
    for _, child in walk_modules(module):
        for name, value in vars(child).items():
            held = value if isinstance(value, list | tuple) else [value]
            if not name.startswith("_") and any(isinstance(v, Tensor | nn.Module) for v in held):
                return True
    args, kwargs = calls.at(1, min(2, calls.length), None)
    seen = walk(calls, module, args, kwargs)
    return any(e.op.name in _FACTORIES and "device" not in e.kwargs for e in seen.recording.events)


def _about_devices(error: BaseException) -> bool:
    text = words(error).lower()
    return "device" in text and "meta" in text


def inputs_kept(lab: Lab) -> Outcome:
    """Whether a call writes into its input."""
    name = "the input after the call"
    changed = []
    for calls, module in zip(lab.sides, lab.modules(), strict=True):
        args, kwargs = calls.at(lab.batch, lab.length, lab.dtype)
        main = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(main, Tensor):
            return Outcome(ComparedRun(name, "there is none", None))
        before = main.clone()
        result = calls.run(module, args, kwargs)
        changed.append(result.ran and not torch.equal(before, main))
    if changed[0] == changed[1]:
        return Outcome(ComparedRun(name, "both write into it" if changed[0] else "as before in both", True))
    side = "A" if changed[0] else "B"
    return Outcome(
        ComparedRun(name, f"{side} writes into it", False), kind="state", say=f"{side} writes into its input"
    )


def registered(lab: Lab) -> Outcome | None:
    """Parameters that lie in plain lists on one side only: not trained, moved or saved."""
    tables = lab.plan.a, lab.plan.b
    loose = [[p.name for p in table.params if not p.registered] for table in tables]
    if not any(loose) or (all(loose) and len(loose[0]) == len(loose[1])):
        return None
    side = "A" if loose[0] else "B"
    names = loose[0] or loose[1]
    shown = ", ".join(f"`{n}`" for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    text = f"{side} does not register {shown}"
    return Outcome(ComparedRun("parameters", text, False), kind="state", say=text)


def every(lab: Lab, more: Callable[[Lab], Iterator[Outcome]]) -> Iterator[Outcome]:
    """All experiments in the order in which they are shown."""
    yield from forward(lab)
    yield from gradients(lab)
    yield from more(lab)
    yield training(lab)
    yield from other_dtypes(lab)
    for found in (inputs_kept(lab), device(lab), registered(lab)):
        if found is not None:
            yield found
