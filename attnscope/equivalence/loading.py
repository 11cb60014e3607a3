"""Methods that take weights from elsewhere: `load_conv1d(state)`, `from_interleaved(wq, wk)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.comparison import ComparedRun
from attnscope.equivalence.differences import gap
from attnscope.equivalence.experiments import Outcome, number, said
from attnscope.equivalence.lab import Lab
from attnscope.equivalence.parameters import Table
from attnscope.loader.importing import run_user_code

_NAME = re.compile(r"load|from_|import|convert|copy_|set_weight|assign|port|restore|adopt")
_STATE = re.compile(r"state|ckpt|checkpoint|^sd$|dict|weights?$|params?$|tensors?$")


def loading(lab: Lab) -> Iterator[Outcome]:
    """Call each such method that both classes define with the same weights, and compare what it leaves."""
    sides = [calls.side.module for calls in lab.sides]
    for name in _methods(sides[0]):
        if name not in _methods(sides[1]):
            continue
        for how, turned in (("", False), (" with weights [in, out]", True)):
            outcome = _tried(lab, name, turned, how)
            if outcome is not None:
                yield outcome


def _methods(module: nn.Module) -> list[str]:
    own = [
        name
        for cls in type(module).__mro__
        if not cls.__module__.startswith("torch.") and cls is not object
        for name, value in vars(cls).items()
        if inspect.isfunction(value) and not name.startswith("_") and _NAME.search(name)
    ]
    return [name for name in dict.fromkeys(own) if name not in ("load_state_dict", "forward")]


def _tried(lab: Lab, name: str, turned: bool, how: str) -> Outcome | None:
    modules = lab.modules()
    after: list[Tensor] = []
    errors: list[BaseException | None] = []
    for calls, module in zip(lab.sides, modules, strict=True):
        arguments = _arguments(module, getattr(module, name), turned)
        if arguments is None:
            return None

        def call(m: nn.Module = module, a: list[Any] = arguments) -> None:
            torch.default_generator.manual_seed(1)
            getattr(m, name)(*a)

        try:
            run_user_code(calls.side.environment, call)
            errors.append(None)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            errors.append(error)
        after.append(Table(module).vector())
    title = f"`{name}`{how}"
    if errors[0] and errors[1]:
        return None
    if errors[0] or errors[1]:
        side = "A" if errors[0] else "B"
        text = f"{side} raises {said(errors[0] or errors[1])}"
        return Outcome(ComparedRun(title, text, False), "state", f"{title}: {text}", (errors[0], errors[1]))
    pulled = lab.plan.pulled(after[1])
    mask = lab.plan.compared
    for p in lab.plan.a.params:
        one, two = torch.where(mask, after[0], 0.0)[p.flat], torch.where(mask, pulled, 0.0)[p.flat]
        found = gap(one, two, lab.tolerance)
        if not found.equal:
            text = f"leaves other numbers in `{p.name}`, by {number(found.largest)}"
            return Outcome(ComparedRun(title, text, False, found.largest), "state", f"{title} {text}")
    return Outcome(ComparedRun(title, "leaves the same weights", True))


def _arguments(module: nn.Module, method: Any, turned: bool) -> list[Any] | None:
    """Weights for a method's parameters: a whole state, or one tensor for each that names a layer."""
    parameters = [
        p
        for p in inspect.signature(method).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if not parameters:
        return None
    state = {n: _drawn(v, i, turned) for i, (n, v) in enumerate(module.state_dict().items())}
    if len(parameters) == 1 and _STATE.search(parameters[0].name.lower()):
        return [state]
    made = []
    for p in parameters:
        names = [n for n in (p.name, f"{p.name}.weight", p.name.replace("_weight", ".weight")) if n in state]
        if not names:
            return None
        made.append(state[names[0]])
    return made


def _drawn(value: Tensor, salt: int, turned: bool) -> Tensor:
    """Numbers that depend on the place alone, in the shape of `value`, a matrix as [in, out] if asked."""
    if not value.is_floating_point():
        return value.clone()
    generator = torch.Generator().manual_seed(100 + salt)
    made = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype)
    return made.T.contiguous() if turned and made.dim() == 2 else made
