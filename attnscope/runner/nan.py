"""`--nan`: stop at the first step that makes a NaN out of inputs without one; show where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.diagnostic import Diagnostic, Label, Report
from attnscope.ops.calls import op_of
from attnscope.ops.catalog import SOFTMAXES, plain
from attnscope.recorder.recording import Event, Recording
from attnscope.recorder.tensors import refs_in, tensors_in
from attnscope.runner.explain import trace_of
from attnscope.runner.memory import name_arguments
from attnscope.runner.recorder import Left, ScriptRecorder
from attnscope.schema import Step
from attnscope.steps import Steps

# Memory that nobody has written to yet may hold anything.
_UNWRITTEN = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"})


class NanStop(BaseException):
    """Ends a script at the first NaN; everything that is to be said has been said."""

    attnscope_stop = True


class NanRecorder(ScriptRecorder):
    """Looks at the values that go into each step and come out of it. `found` is told of the first NaN."""

    def __init__(
        self, recording: Recording, target: str, forwards: int, found: Callable[[Report], None]
    ) -> None:
        super().__init__(recording)
        self._target = target
        self._forwards = forwards
        self._found = found
        self._looked = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        inputs = list(tensors_in((*args, *named.values())))
        # What is made of no tensor was written so: `torch.tensor([nan])`, data from a file.
        clean = bool(inputs) and not any(has_nan(tensor) for tensor in inputs)
        clean = clean and not _given_nan((*args, *named.values()))
        copies: dict[int, Tensor] = {}
        op = op_of(func)
        if clean and op.writes:  # its input will be gone
            copies = {id(tensor): tensor.detach().clone() for tensor in inputs[:1]}
        noted = len(self.recording.raw)
        result = super().__torch_function__(func, types, args, kwargs)
        if clean and len(self.recording.raw) == noted + 1 and op.name not in _UNWRITTEN:
            made = [result] if isinstance(result, Tensor) else list(tensors_in((result,)))
            made = made or inputs[:1]
            if any(has_nan(tensor) for tensor in made):
                looked_at = [copies.get(id(tensor), tensor) for tensor in inputs]
                self._found(self._report(looked_at, made))
                raise NanStop
        return result

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Left:
        left = super().enter(module, args, kwargs)
        if not self._looked:
            self._looked = True
            bad = next(((n, p) for n, p in module.named_parameters() if has_nan(p)), None)
            if bad is not None:
                self._found(self._in_parameter(*bad))
                raise NanStop
        return left

    # -- what is said ----------------------------------------------------------------------------------

    def _in_parameter(self, name: str, parameter: Tensor) -> Report:
        owner = type(self.recording.root).__name__
        if self._forwards:
            count = "1 forward" if self._forwards == 1 else f"{self._forwards} forwards"
            note = f"no step of the {count} before made one: it came with backward or the optimizer's step"
        else:
            note = "it was so before the first forward"
        message = f"parameter `{name}` of `{owner}` is nan when the module is called"
        finding = Diagnostic("", "error", message, notes=(f"`{name}`: {describe(parameter)}", note))
        return Report(self._target, (finding,))

    def _report(self, inputs: Sequence[Tensor], made: Sequence[Tensor]) -> Report:
        name_arguments(self.recording)
        steps = Steps(self.recording, inner=True)
        index = len(self.recording.raw) - 1
        event = self.recording.events[index]
        row = steps.rows[steps.of_event[index]]
        refs = [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]
        names = self._names(event, refs, steps)
        notes = [f"{name}: {describe(tensor)}" for name, tensor in zip(names, inputs, strict=False)]
        why, help = reason(event.op.name, inputs, event)
        labels = self._labels(refs, names, inputs, steps, row)
        finding = Diagnostic(
            "",
            "error",
            f"`{row.op}` makes nan out of inputs that have none",
            row.span,
            f"{describe(made[0])}" + (f": {why}" if why else ""),
            tuple(labels),
            tuple(notes),
            help,
        )
        shown = tuple(step for step in steps.rows if not step.inner or step is row)
        del self.recording.__dict__["events"]  # more events may follow
        return Report(self._target, (finding,), trace=trace_of(self.recording, shown))

    def _names(self, event: Event, refs: Sequence[int], steps: Steps) -> list[str]:
        """What the source calls each input: its variable, the parameter's name, or its place."""
        variables: dict[int, str | None] = {}
        for number, earlier in enumerate(self.recording.events):
            row = steps.of_event.get(number)
            if row is not None and steps.rows[row].variable is not None:
                variables.update(dict.fromkeys(earlier.outputs, steps.rows[row].variable))
        owned, leaves = self.recording.owned, self.recording.leaves
        names = []
        for place, ref in enumerate(refs):
            name = variables.get(ref) or owned.get(leaves.get(ref, -1), ("", None))[1]
            names.append(f"`{name}`" if name else f"input {place} of `{event.op.name}`")
        return names

    def _labels(
        self, refs: Sequence[int], names: Sequence[str], inputs: Sequence[Tensor], steps: Steps, row: Step
    ) -> list[Label]:
        labels = []
        producers = {out: n for n, event in enumerate(self.recording.events) for out in event.outputs}
        for ref, name, tensor in zip(refs, names, inputs, strict=False):
            made_at = steps.of_event.get(producers.get(ref, -1))
            if made_at is None or steps.rows[made_at].span == row.span:
                continue
            labels.append(Label(steps.rows[made_at].span, f"{name} is made here, {span_of_values(tensor)}"))
        return labels[:3]


def has_nan(tensor: Tensor) -> bool:
    """Whether a tensor holds a NaN; False where its values cannot be read."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
        return False
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    try:
        with torch.no_grad():
            return bool(torch.isnan(tensor.detach()).any().item())
    except (RuntimeError, NotImplementedError):  # tensors of vmap and of tracers have no values
        return False


def _given_nan(values: Sequence[Any]) -> bool:
    """Whether a NaN was written into the source itself."""
    return any(isinstance(value, float) and value != value for value in values)


def span_of_values(tensor: Tensor) -> str:
    """`from -1.2 to 3.4` over all that is not NaN."""
    with torch.no_grad():
        values = tensor.detach()
        if values.is_complex():
            values = values.abs()
        values = values[~torch.isnan(values)] if values.is_floating_point() else values.flatten()
        if not values.numel():
            return "without values" if not tensor.numel() else "nan throughout"
        if values.dtype is torch.bool:
            return f"true in {int(values.sum())} of {values.numel()}"
        low, high = values.min().item(), values.max().item()
    return f"from {low:.4g} to {high:.4g}" if low != high else f"{low:.4g} throughout"


def describe(tensor: Tensor) -> str:
    """The range of a tensor, and how many of its elements are NaN or infinite."""
    parts = [span_of_values(tensor)]
    if tensor.is_floating_point():
        with torch.no_grad():
            values = tensor.detach()
            total = values.numel()
            for name, where in (
                ("nan", torch.isnan(values)),
                ("inf", values == float("inf")),
                ("-inf", values == float("-inf")),
            ):
                number = int(where.sum())
                if number and not (number == total and name != "nan"):
                    parts.append(f"{number} of {total} are {name}")
    if parts[0] == "nan throughout":
        parts = parts[:1]
    return ", ".join(parts)


def reason(name: str, inputs: Sequence[Tensor], event: Event) -> tuple[str, str]:
    """(why this operation made a NaN, how to mend it), as far as its inputs tell."""
    if not inputs:
        return "", ""
    with torch.no_grad():
        first = inputs[0].detach()
        infinite = [bool(torch.isinf(x.detach()).any()) for x in inputs if x.is_floating_point()]
        if name in SOFTMAXES and first.is_floating_point():
            dim = event.kwargs.get("dim", event.args[1] if len(event.args) > 1 else -1)
            rows = (first == float("-inf")).all(dim=dim if isinstance(dim, int) else -1)
            if bool(rows.any()):
                said = f"{int(rows.sum())} of {rows.numel()} rows are -inf throughout"
                return said, "let every query attend to at least one key"
            if bool((first == float("inf")).any()):
                return "a score is inf", ""
        if plain(name) == "div" and len(inputs) > 1 and bool((inputs[1] == 0).any()):
            zero = int(((inputs[1] == 0) & (first == 0)).sum())
            return f"0 / 0 in {zero} places" if zero else "", "keep the divisor away from 0"
        if name in ("log", "sqrt", "rsqrt", "log2", "log10") and first.is_floating_point():
            number = int((first < 0).sum())
            if number:
                return f"{number} of {first.numel()} are negative", "keep the argument from going below 0"
        if any(infinite):
            return "an input holds inf, and inf - inf and 0 · inf have no value", ""
    return "", ""
