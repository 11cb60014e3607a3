"""The phases of a module's life: forward, backward, a move to another device, its state dict. Crashes become
findings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.checks.as216_no_gradient import _total
from attnscope.checks.lab import Lab
from attnscope.checks.subject import Subject, parts
from attnscope.crashes import Crash, diagnose
from attnscope.diagnostic import Diagnostic, Tried
from attnscope.loader.expressions import words
from attnscope.recorder.record import record
from attnscope.sandbox.copying import cloned, copied, kept_outside
from attnscope.sandbox.state import quiet, seeded
from attnscope.sandbox.tensors import tree_map
from attnscope.schema import Step
from attnscope.steps import Steps
from attnscope.strict import passed_over


def forward_crash(lab: Lab) -> tuple[Diagnostic, ...] | None:
    """What the forward pass raised in the module's own type, explained; None where it ran."""
    outcome = lab.own
    if outcome.error is None:
        return None
    recording = lab.own_recording
    error = recording.error if recording.error is not None else outcome.error
    return explain(lab.subject, error, "forward", _steps(recording))


def backward_crash(lab: Lab) -> tuple[Diagnostic, ...] | None:
    """What a backward pass in training mode raised; None where it ran, or where nothing wants gradients."""
    lab.spend(4)
    subject = lab.alive
    module = copied(subject.module)
    if module is None or not any(p.requires_grad for p in module.parameters()):
        return None
    with quiet(subject.environment), seeded(0), torch.enable_grad():
        phase = "forward"
        recording = None
        try:
            module.train()
            args, kwargs = cloned(subject.args), cloned(dict(subject.kwargs))
            recording = record(module, args, kwargs)
            if recording.error is not None:
                raise recording.error
            total = _total(recording.result)
            if total is None or not total.requires_grad:
                return None
            phase = "backward"
            total.backward()  # type: ignore[no-untyped-call]
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if phase == "backward" and isinstance(error, NotImplementedError):
                return None  # this build of PyTorch has no way back through a step: no fault of the module
            steps = _steps(recording) if recording is not None else ()
            found = explain(replace(subject, module=module), error, phase, steps)
            if phase == "forward" and subject.main in subject.guessed:
                # It ran in eval(): sizes that were guessed may not be what training wants.
                return tuple(replace(one, severity="note") for one in found)
            return found
    return None


def moved_error(lab: Lab) -> BaseException | None:
    """What a run on `meta` raised because tensors stayed behind; None where it ran or where meta cannot
    tell."""
    return lab.once(_move)[0]


def move_crash(lab: Lab) -> tuple[Diagnostic, ...] | None:
    """What a run on `meta` raised, explained; None where it ran or where meta cannot tell."""
    return lab.once(_move_explained)


def _move_explained(lab: Lab) -> tuple[Diagnostic, ...] | None:
    error, module, steps = lab.once(_move)
    if error is None:
        return None
    return diagnose(Crash(error, "move", module, steps, type(lab.subject.module), device="meta"))


def move_is_explained(lab: Lab) -> bool:
    """Whether what a move raised has a name of its own."""
    return any(one.code != "AS100" for one in lab.once(_move_explained) or ())


def _move(lab: Lab) -> tuple[BaseException | None, Any, tuple[Step, ...]]:
    lab.spend()
    subject = lab.subject
    module = copied(subject.module) if kept_outside(subject.module) is None else None
    if module is None:
        return None, None, ()
    with quiet(subject.environment), seeded(0), torch.no_grad():
        try:
            module.to("meta")
            module.eval()
            args, kwargs = (tree_map(lambda t: t.to("meta"), v) for v in (subject.args, dict(subject.kwargs)))
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None, None, ()
        with without_compiler():
            recording = record(module, args, kwargs)
            error = recording.error
            if error is None or not _stayed_behind(error) or _runs_where_it_is_made(subject, args, kwargs):
                return None, None, ()
    return error, module, _steps(recording)


def _runs_where_it_is_made(subject: Subject, args: Any, kwargs: Any) -> bool:
    """A module whose constructor takes a device is moved by constructing it there."""
    try:
        made = subject.elsewhere() if subject.elsewhere is not None else None
        if made is None or type(made) is not type(subject.module):
            return False
        made.to("meta").eval()(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return not _stayed_behind(error)
    return True


@contextmanager
def without_compiler() -> Iterator[None]:
    """Kernels of `meta` load PyTorch's compiler, which takes a second, to be kept out of it: they are, so."""
    if "torch._dynamo" in sys.modules:
        yield
        return
    kept: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        kept.append(function)
        return function

    absent: Any = ModuleType("torch._dynamo")
    absent.disable = disable
    sys.modules["torch._dynamo"] = vars(torch)["_dynamo"] = absent
    try:
        yield
    finally:
        del sys.modules["torch._dynamo"], vars(torch)["_dynamo"]
        for function in kept:  # what was noted there, so that the compiler is asked the next time
            vars(function).pop("__dynamo_disable", None)


def _stayed_behind(error: BaseException) -> bool:
    """Whether the error says that two devices met; whatever else meta refuses is no fault of the module."""
    text = words(error).lower()
    if isinstance(error, NotImplementedError) or not isinstance(error, RuntimeError | ValueError | TypeError):
        return False
    devices = (
        "expected device",
        "same device",
        "unhandled fakeTensor device".lower(),
        "devices, cpu",
        "expected all tensors",
    )
    if "out of meta" in text or "item()" in text or "data-dependent" in text or "no data" in text:
        return False
    return any(words in text for words in devices)


def state_crash(lab: Lab) -> tuple[Diagnostic, ...] | None:
    """What saving the state and loading it again raised."""
    subject = lab.subject
    one, two = copied(subject.module), copied(subject.module)
    if one is None or two is None:
        return None
    state = None
    with quiet(subject.environment):
        try:
            state = one.state_dict()
            two.load_state_dict(state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return diagnose(Crash(error, "load", two, (), type(subject.module), state))
    return None


def half_notes(lab: Lab) -> list[str]:
    """What the module does in half precision when nobody asked for it: said, and no fault."""
    notes = []
    if kept_outside(lab.subject.module) is not None:
        return []
    if lab.subject.dtype is not None or lab.own.error is not None or lab.size > 20_000_000:
        return []
    for dtype in (torch.bfloat16, torch.float16):
        made = copied(lab.alive.module)
        if made is None:
            return []
        name = str(dtype).removeprefix("torch.")
        with quiet(lab.subject.environment):
            try:
                made.to(dtype)
            except KeyboardInterrupt:
                raise
            except BaseException:
                continue

        def cast(tensor: Tensor, dtype: torch.dtype = dtype) -> Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        args, kwargs = tree_map(cast, lab.alive.args), tree_map(cast, dict(lab.alive.kwargs))
        outcome = replace(lab.alive, module=made, args=args, kwargs=kwargs).run(fresh=False)
        if outcome.error is not None:
            first = words(outcome.error).strip().partition("\n")[0][:160]
            notes.append(f"in {name} the forward raises {type(outcome.error).__name__}: {first}")
        elif outcome.output is not None and bool(outcome.output.isnan().any()):
            own = lab.own.output
            if own is not None and not bool(own.isnan().any()):
                notes.append(f"in {name} outputs are NaN")
    return notes


def explain(
    subject: Subject, error: BaseException, phase: Any, steps: tuple[Step, ...]
) -> tuple[Diagnostic, ...]:
    """The diagnosis of one crash."""
    module: nn.Module = subject.module
    return diagnose(Crash(error, phase, module, steps, type(module)))


def _steps(recording: Any) -> tuple[Step, ...]:
    try:
        return tuple(Steps(recording).rows)
    except Exception as error:
        passed_over(error)
        return ()


def run_phases(lab: Lab) -> Iterator[Diagnostic | Tried]:
    """Forward first: where it raises nothing else is tried."""
    found = forward_crash(lab)
    yield Tried("forward", "runs" if found is None else _raised(lab.own.error), found is None)
    if found is not None:
        yield from found
        return
    for name, phase in (
        ("backward", backward_crash),
        ("move to another device", move_crash),
        ("state_dict", state_crash),
    ):
        if lab.spent:
            return
        kept = kept_outside(lab.subject.module) if phase is move_crash else None
        if kept is not None:
            why = f"not tried: in a copy, `{kept}` still calls the layers of the original"
            yield Tried(name, why, False, status="not tried")
            continue
        found = phase(lab)
        device = kept_device(lab.subject.module) if phase is move_crash and found is not None else None
        if device is not None:
            why = f"not tried: `{device}` keeps the device that the module was made for"
            yield Tried(name, why, False, status="not tried")
            continue
        if name != "state_dict" or found is not None:
            yield Tried(name, "runs" if found is None else "raises", found is None)
        if found is not None:
            yield from found


def kept_device(module: nn.Module) -> str | None:
    """An attribute that holds a device: the module makes its tensors there, and is made anew to be moved."""
    for path, part in parts(module):
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.device) or (type(value) is str and value in ("cpu", "cuda", "mps")):
                return f"{path}.{name}" if path else name
    return None


def _raised(error: BaseException | None) -> str:
    return f"raises {type(error).__name__}" if error is not None else "raises"
