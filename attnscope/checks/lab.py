"""The experiments, each done once and shared by the checks that look at it.

Experiments run in double precision on copies where the module allows it, so that what is no effect at all
can be told from a small one. Tolerances are relative to the largest output and stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from attnscope.checks.budget import Budget
from attnscope.checks.lineage import Lineage
from attnscope.checks.living import enliven, is_garbage, named, parameters
from attnscope.checks.maps import NOTHING, Map, build_maps
from attnscope.checks.roles import is_table_of_angles, together
from attnscope.checks.subject import Outcome, Subject
from attnscope.recorder.capture import Capture
from attnscope.recorder.record import Recording
from attnscope.recorder.record import record as _record
from attnscope.recorder.tensors import to_numpy
from attnscope.sandbox.copying import copied
from attnscope.sandbox.guard import preserved
from attnscope.sandbox.state import quiet, seeded
from attnscope.schema import Span
from attnscope.steps import Steps

_COPY_EACH = 5_000_000
DOUBLE_AT_MOST = 60_000_000
_VALUES_AT_MOST = 400_000
_MOST_POSITIONS = 16
_STEPS = 100  # of a run that was not recorded yet

Shown = TypeVar("Shown")


@dataclass(frozen=True)
class Influence:
    """What moved when one token was changed.

    `moved` [B, T, P] is the largest change of output token t, relative to the largest output, when input
    token `positions[p]` was changed in every batch entry.
    """

    moved: Any
    positions: tuple[int, ...]
    length: int

    def pairs(self, future: bool) -> list[tuple[int, int, int]]:
        """(column, output token, input token) of all probed pairs in the future, or in the past."""
        return [
            (column, t, s)
            for column, s in enumerate(self.positions)
            for t in range(self.length)
            if (s > t if future else s < t)
        ]


class Lab:
    """One subject and what experiments showed of it. Everything is done on first demand."""

    def __init__(self, subject: Subject, budget: Budget | None = None) -> None:
        self.subject = subject
        self.budget = budget or Budget()
        self.size = sum(p.numel() for p in parameters(subject.module))
        self.owned = subject.part.owned if subject.part is not None else None
        self._known: dict[Any, Any] = {}

    @property
    def spent(self) -> bool:
        """No operations are left for experiments that are not begun yet."""
        return self.budget.spent

    def spend(self, runs: float = 1.0) -> None:
        """So many runs of the subject are about to be done."""
        steps = len(self.recording.raw) if "recording" in self.__dict__ else _STEPS
        value = self.subject.arguments.get(self.subject.main or "")
        axes = self.subject.axes.get(self.subject.main or "", ())
        tokens = 1
        if isinstance(value, Tensor):
            for axis, n in enumerate(value.shape):
                tokens *= n if axis >= len(axes) or axes[axis] != "C" else 1
        self.budget.spend(runs, self.size, tokens, steps)

    def once(self, experiment: Callable[[Lab], Shown]) -> Shown:
        """What an experiment of a check's own shows on this subject; it is done once."""
        key = experiment, self.owned
        if key not in self._known:
            self._known[key] = experiment(self)
        return cast("Shown", self._known[key])

    # -- who is experimented on ---------------------------------------------------------------------------

    @cached_property
    def garbage(self) -> tuple[str, ...]:
        """Names of parameters that were never given values: uninitialised memory."""
        return tuple(name for name, p in named(self.subject.module) if is_garbage(p))

    @cached_property
    def alive(self) -> Subject:
        """The subject itself; where parameters hold uninitialised memory, a copy with numbers in them."""
        if not self.garbage:
            return self.subject
        made = copied(self.subject.module)
        if made is None:
            return self.subject
        enliven(made, zeros=False)
        return replace(self.subject, module=made)

    @cached_property
    def precise(self) -> bool:
        """Whether experiments are done in double precision."""
        return self._exact[1]

    @cached_property
    def exact(self) -> Subject:
        """The subject of the experiments: a copy in double precision whose zero-initialised parameters are
        small random numbers instead, since a gate that is closed hides everything behind it."""
        return self._exact[0]

    @cached_property
    def _exact(self) -> tuple[Subject, bool]:
        for double in (True, False):
            if double and self.size > DOUBLE_AT_MOST:
                continue
            made = self.subject.in_double() if double else self._copy()
            if made is None:
                continue
            enliven(made.module, zeros=True)
            if not double or made.run(module=made.module, fresh=self.size <= _COPY_EACH).error is None:
                return made, double
        return self.subject, False

    def _copy(self) -> Subject | None:
        made = copied(self.subject.module)
        if made is None:
            return None
        if self.subject.dtype in (torch.float16, torch.bfloat16):
            return None
        return replace(self.subject, module=made)

    def run(self, values: dict[str, Any] | None = None, **options: Any) -> Outcome:
        """One run of the exact subject, which is as before afterwards."""
        self.spend()
        if self.size <= _COPY_EACH:
            return self.exact.run(values, **options)
        module = options.pop("module", self.exact.module)
        buffers = [(b, b.detach().clone()) for b in module.buffers()]
        try:
            with preserved(module):
                return self.exact.run(values, module=module, fresh=False, **options)
        finally:
            with torch.no_grad():
                for buffer, kept in buffers:
                    buffer.copy_(kept)

    @cached_property
    def base(self) -> Outcome:
        """The exact subject in evaluation mode."""
        return self.run()

    @cached_property
    def own(self) -> Outcome:
        """The module as it is, in its own type, in evaluation mode."""
        return self.alive.run(fresh=True)

    # -- what was recorded --------------------------------------------------------------------------------

    @cached_property
    def recording(self) -> Recording:
        """One recorded run of the exact subject, with every step's numbers."""
        return self.record(self.exact)

    def record(
        self, subject: Subject, values: dict[str, Any] | None = None, *, copy: bool = True
    ) -> Recording:
        self.spend(3)  # a recorded run takes so much longer
        called = subject.with_arguments(values) if values else subject
        module = copied(called.module) if copy and self.size <= _COPY_EACH else called.module
        module = module if module is not None else called.module
        main = called.arguments.get(called.main or "")
        small = not isinstance(main, Tensor) or main.numel() <= _VALUES_AT_MOST
        with quiet(called.environment), seeded(0), torch.no_grad():
            with suppress(Exception):  # a module may refuse; the run itself will tell
                module.eval()
            return _record(
                module,
                called.args,
                dict(called.kwargs),
                values=small,
                capture=Capture("full", scores=True),
                input_axes=dict(called.axes),
            )

    @cached_property
    def own_recording(self) -> Recording:
        """The same of the module as it is, in its own type."""
        return self.record(self.alive)

    @cached_property
    def steps(self) -> Steps:
        return Steps(self.recording)

    @cached_property
    def lineage(self) -> Lineage:
        given = self.exact.arguments
        angles = (
            serial
            for name, serial in self.recording.arguments
            if isinstance(value := given.get(name), Tensor) and is_table_of_angles(to_numpy(value))
        )
        return Lineage(self.recording, frozenset(angles))

    @cached_property
    def all_maps(self) -> list[Map]:
        """The attention that was found in the recorded run."""
        return build_maps(self.lineage, self.steps) if self.recording.error is None else []

    @property
    def maps(self) -> list[Map]:
        """The attention that is judged: without those of parts, which are judged by themselves."""
        if self.owned is None:
            return self.all_maps
        return [one for one in self.all_maps if one.number in self.owned]

    def span(self, event: int | None) -> Span | None:
        return self.lineage.span(event)

    # -- axes ---------------------------------------------------------------------------------------------

    @cached_property
    def main(self) -> str | None:
        return self.exact.main

    @cached_property
    def input_axes(self) -> tuple[int | None, int | None]:
        """The batch axis and the token axis of the main argument."""
        axes = self.exact.axes.get(self.main or "", ())
        return (axes.index("B") if "B" in axes else None), (axes.index("T") if "T" in axes else None)

    @cached_property
    def batch(self) -> int:
        axis = self.input_axes[0]
        return int(self.tensor.shape[axis]) if axis is not None and self.main else 1

    @cached_property
    def length(self) -> int:
        axis = self.input_axes[1]
        return int(self.tensor.shape[axis]) if axis is not None and self.main else 0

    @property
    def tensor(self) -> Tensor:
        """The main argument."""
        value: Tensor = self.exact.arguments[self.main or ""]
        return value

    @cached_property
    def together(self) -> tuple[str, ...]:
        """Arguments that hold the same tokens as the main one and are changed with it: queries, keys,
        values."""
        part = self.subject.part
        return together(self) if part is None else part.together

    def output_axes(self, output: Tensor) -> tuple[int | None, int | None]:
        """The batch axis and the token axis of an output; None where it has none."""
        b, t = self.input_axes
        if t is None:
            return None, None
        fits = [i for i in range(output.dim()) if output.shape[i] == self.length]
        token = t if t in fits else next((i for i in fits if i != b), None)
        if token is None:
            return None, None
        if b is None:
            return None, token
        if b < output.dim() and b != token and output.shape[b] == self.batch:
            return b, token
        others = [i for i in range(output.dim()) if output.shape[i] == self.batch and i != token]
        return (others[0] if others else None), token

    # -- changing the input -------------------------------------------------------------------------------

    def changed(self, index: tuple[Any, ...], seed: int = 11) -> dict[str, Any]:
        """The arguments with other tokens at one place of the main argument's axes."""
        fresh: dict[int, Tensor] = {}
        made = {}
        for name in self.together:
            value = self.exact.arguments[name]
            if id(value) not in fresh:
                new = value.clone()
                new[index] = self.other(new[index], value, seed + len(fresh))
                fresh[id(value)] = new
            made[name] = fresh[id(value)]
        return made

    def other(self, part: Tensor, whole: Tensor, seed: int) -> Tensor:
        """Other tokens of the same kind: rows of normal numbers, or other ids that occur."""
        with seeded(seed):
            if part.is_floating_point():
                spread = float(whole.detach().double().std()) if whole.numel() > 1 else 1.0
                spread = spread if np.isfinite(spread) and spread > 1e-6 else 1.0
                return (torch.randn(part.shape, dtype=torch.float64) * 1.5 * spread).to(part.dtype)
            top = max(int(whole.max()), 1) if whole.numel() else 1
            low = int(whole.min()) if whole.numel() else 0  # an id that does not occur may mean padding
            return torch.where(part < top, part + 1, torch.full_like(part, low if low < top else 0))

    def at(self, token: Any = None, entry: Any = None) -> tuple[Any, ...]:
        """The index that picks a token, a batch entry or both from the main argument."""
        b, t = self.input_axes
        index: list[Any] = [slice(None)] * self.tensor.dim()
        if token is not None and t is not None:
            index[t] = token
        if entry is not None and b is not None:
            index[b] = entry
        return tuple(index)

    # -- comparing ----------------------------------------------------------------------------------------

    @cached_property
    def scale(self) -> float:
        """The largest finite output."""
        output = self.base.output
        return largest(output) if output is not None else 1.0

    @property
    def tolerance(self) -> float:
        """Above this a change is one (relative)."""
        return 1e-7 if self.precise else 1e-5

    @property
    def nothing(self) -> float:
        """Below this there is no change at all (relative)."""
        return 1e-13 if self.precise else 1e-8

    def difference(self, output: Tensor, axes: Sequence[int | None]) -> Any:
        """The largest change against the base run along the given axes (others are reduced), relative."""
        base = self.base.output
        assert base is not None
        a, b = base.detach(), output.detach()
        if a.is_complex():
            a, b = torch.view_as_real(a), torch.view_as_real(b)
        one, two = a.double().cpu().numpy(), b.double().cpu().numpy()
        with np.errstate(invalid="ignore"):
            delta = np.abs(one - two)
        delta = np.where(np.isfinite(delta), delta, np.where(_same(one, two), 0.0, np.inf)) / self.scale
        kept = [axis for axis in axes if axis is not None]
        others = tuple(i for i in range(delta.ndim) if i not in kept)
        reduced = delta.max(axis=others, keepdims=True, initial=0.0)  # of nothing, nothing changed
        return np.transpose(reduced, [*kept, *others]).reshape([reduced.shape[i] for i in kept])

    @cached_property
    def influence(self) -> Influence | None:
        """Which output token moves with which input token; None where outputs have no tokens."""
        if self.main is None or self.base.output is None or self.length < 2:
            return None
        axes = self.output_axes(self.base.output)
        if axes[1] is None:
            return None
        positions = probed(self.length)
        columns: list[Any] = []
        done: list[int] = []
        for s in positions:
            if self.spent and len(done) >= 2:
                break
            outcome = self.run(self.changed(self.at(token=s)))
            if outcome.output is None or outcome.output.shape != self.base.output.shape:
                return None
            moved = self.difference(outcome.output, axes if axes[0] is not None else (axes[1],))
            columns.append(moved if axes[0] is not None else moved[None])
            done.append(s)
        return Influence(np.stack(columns, axis=-1), tuple(done), self.length)

    @cached_property
    def crossing(self) -> Any | None:
        """[B, B]: how much entry b of the output moves when entry a of the input is changed; None where
        untried."""
        output = self.base.output
        if self.main is None or output is None or self.batch < 2:
            return None
        axes = self.output_axes(output)
        if axes[0] is None:
            return None
        rows = []
        for entry in (0, self.batch - 1):
            outcome = self.run(self.changed(self.at(entry=entry)))
            if outcome.output is None or outcome.output.shape != output.shape:
                return None
            rows.append(self.difference(outcome.output, (axes[0],)))
        return np.stack(rows)

    @cached_property
    def empty(self) -> Any:
        """[B, T] True where a query has no key that it may attend to, in some attention of the run."""
        rows = np.zeros((max(self.batch, 1), max(self.length, 1)), dtype=bool)
        for one in self.all_maps:
            masked = one.bhts("masked")
            if masked is None or masked.shape[2] != self.length:
                continue
            bare = (masked.max(axis=-1) < NOTHING) | np.isnan(masked).all(axis=-1)
            found = bare.any(axis=1)
            if found.shape[0] in (1, rows.shape[0]):
                rows |= found
        return rows

    # -- what is meant ------------------------------------------------------------------------------------

    @cached_property
    def causal(self) -> bool:
        """Whether causal attention may be meant: not where the user says no, nor between two sequences, nor
        in an encoder."""
        part = self.subject.part
        return self.subject.causal is not False and (part is None or part.kind == "self")

    # -- where things show --------------------------------------------------------------------------------

    def made_by(self, call: int) -> nn.Module | None:
        return self.recording.calls[call][0] if 0 <= call < len(self.recording.calls) else None


def probed(length: int) -> tuple[int, ...]:
    """Every token of a short sequence; of a long one the first, the last and some between."""
    if length <= _MOST_POSITIONS:
        return tuple(range(length))
    some = np.linspace(0, length - 1, _MOST_POSITIONS)
    return tuple(sorted({round(x) for x in some} | {1, length - 2}))


def largest(output: Tensor) -> float:
    """The largest finite number of a tensor, 1 where there is none."""
    values = output.detach().abs().double()
    finite = values[values.isfinite()]
    top = float(finite.max()) if finite.numel() else 0.0
    return top if top > 0 else 1.0


def _same(one: Any, two: Any) -> Any:
    return (np.isnan(one) & np.isnan(two)) | (one == two)
