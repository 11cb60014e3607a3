"""A user's target, ready to be run: loaded, constructed, with the arguments of one call.

What the module itself raises on the way is not an error of the command: it is kept as a `Crash`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch

from attnscope.crashes import Crash, Phase
from attnscope.crashes.frames import is_the_users
from attnscope.errors import UsageError
from attnscope.loader import (
    Built,
    CallInputs,
    Change,
    Made,
    construct,
    load_target,
    make_inputs,
    settled,
)
from attnscope.loader.importing import run_user_code
from attnscope.loader.sizes import BATCH, LENGTH
from attnscope.schema import ModelInfo, Step, Token, Trace

if TYPE_CHECKING:
    from torch import nn

_PHASES = {"constructor": "construct", "state_dict": "load", "cast": "move"}


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line says of a target, its arguments and its inputs.

    `batch` and `length` are None where nothing was said; `dtype` and `device` are names.
    """

    target: str
    args: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    only: str | None = None
    batch: int | None = None
    length: int | None = None
    layout: str | None = None
    causal: bool | None = None
    seed: int | None = None
    dtype: str | None = None
    device: str | None = None
    state_dict: str | None = None
    train: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A target that was constructed and its call, or the crash that came first."""

    request: Request
    built: Built
    call: CallInputs | None
    crash: Crash | None

    @property
    def module(self) -> nn.Module:
        """The module that is looked at. Only where nothing crashed before it existed."""
        if self.built.module is None:
            raise ValueError("the module was not constructed")
        return self.built.module

    def repeated(self, tokens: Sequence[Token]) -> tuple[Token, ...]:
        """The tokens of a text as the call has them: repeated, where it runs with more only."""
        if self.call is None or self.request.inputs or not tokens:
            return tuple(tokens)
        length = max(self.call.length, len(tokens))
        return tuple(replace(tokens[i % len(tokens)], index=i) for i in range(length))

    def noted(self, trace: Trace, length: int) -> Trace:
        """A trace that says so where its text was repeated."""
        if not 0 < length < len(trace.tokens):
            return trace
        note = f"the text is repeated to {len(trace.tokens)} tokens: with {length} the module does not run"
        return replace(trace, notes=(note, *trace.notes))

    def info(self) -> ModelInfo:
        """What ran, and what was guessed so that it could."""
        request, module = self.request, self.built.module
        guesses = (self.built.guesses, self.call.guesses if self.call is not None else "")
        parameters = 0
        if module is not None:
            try:
                parameters = sum(parameter.numel() for parameter in module.parameters())
            except (AttributeError, ValueError):  # no tables of parameters, or lazy ones without a size
                parameters = 0
        return ModelInfo(
            layer=None,
            target=request.target + (f" {request.only}" if request.only else ""),
            config=dict(self.built.config),
            seed=self.built.seed,
            weights=f"weights from {request.state_dict}" if request.state_dict else "random",
            parameters=parameters,
            guesses=tuple(line for line in guesses if line),
        )


def dtype_of(name: str | None) -> torch.dtype | None:
    """The floating dtype of that name."""
    if name is None:
        return None
    from attnscope.layers.options import DTYPES
    from attnscope.text import unknown

    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return cast("torch.dtype", getattr(torch, name))


def prepare(request: Request, token_ids: Sequence[int] | None = None) -> Prepared:
    """Load and construct the target and make the arguments of one call of it.

    `token_ids` are those of a text: a vocabulary that is guessed holds them. Without them T is
    `request.length`. The user's own prints go to standard error.

    Raises UsageError for what the command line got wrong, or where `forward` wants what cannot be guessed.
    """
    from attnscope.layers.stack import find_device

    _refuse_small(request)
    device = str(find_device(request.device or "cpu"))
    dtype = dtype_of(request.dtype)
    batch = request.batch or (1 if token_ids is not None else BATCH)
    length = len(token_ids) if token_ids is not None else request.length or LENGTH
    target = load_target(request.target)

    def make(change: Change, thorough: bool = False) -> Made:
        built = construct(
            target,
            request.args,
            only=request.only,
            dtype=dtype,
            device=device,
            seed=123 if request.seed is None else request.seed,
            state_dict=request.state_dict,
            batch=batch,
            length=length,
            vocab=max(token_ids) + 1 if token_ids else None,
            variant=change.variant,
            instead=change.instead,
            fixed=change.fixed,
        )
        if built.error is not None or built.module is None:
            return Made(built)
        try:
            call = make_inputs(
                built,
                request.inputs,
                batch=batch,
                length=length,
                text_tokens=token_ids,
                layout=request.layout,
                causal=request.causal is not False,
                thorough=thorough,
                free_length=request.length is None,
            )
        except Exception as error:
            if isinstance(error, UsageError) or not is_the_users(error):
                raise
            return Made(built, None, error)
        return Made(built, call)

    first = make(Change(), thorough=True)
    try:
        made = settled(first, make)
        if made.call is not None and made.call.error is not None and made.call.doubt:
            raise UsageError(made.call.doubt)
    except UsageError as error:
        error.steps = _steps(first)
        raise
    return _prepared(request, made, device)


def _refuse_small(request: Request) -> None:
    for option, size in (("--batch", request.batch), ("--len", request.length)):
        if size is not None and size < 1:
            raise UsageError(f"{option} {size} is too small", "1 or more would work")


def _prepared(request: Request, made: Made, device: str) -> Prepared:
    """What was made, its crash before or outside the call explained as one."""
    built = made.built
    if made.raised is not None:
        crash = Crash(made.raised, "forward", built.module, cls=type(built.module), device=device)
        return Prepared(request, built, None, crash)
    if made.call is not None:
        return Prepared(request, built, made.call, None)
    phase = cast("Phase", _PHASES.get(built.phase, "construct"))
    cls: Any = built.target.factory
    crash = Crash(
        built.error or RuntimeError("the module was not constructed"),
        phase,
        built.module,
        cls=cls if isinstance(cls, type) else None,
        device=device,
    )
    return Prepared(request, built, None, crash)


def _steps(made: Made) -> tuple[Step, ...]:
    """The tensor steps up to where a call raised."""
    from attnscope.recorder.record import record
    from attnscope.steps import Steps

    module, call = made.built.module, made.call
    if module is None or call is None:
        return ()
    training = module.training
    args, kwargs = call.fresh()

    def run() -> tuple[Step, ...]:
        module.eval()
        try:
            with torch.no_grad():
                return tuple(Steps(record(module, args, kwargs, input_axes=call.axes)).rows)
        finally:
            module.train(training)

    return run_user_code(made.built.target.environment, run)
