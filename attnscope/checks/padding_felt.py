"""What a run with padding shows beyond weights: whether outputs feel it, and who else may bring the mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from attnscope.checks.decoding import parameters_of
from attnscope.checks.lab import largest
from attnscope.checks.padding import Padded, attentions, called_with, token_axis
from attnscope.checks.subject import Subject
from attnscope.sandbox.state import seeded


class _Shaken(TorchFunctionMode):
    """The first layer gives other rows for padded tokens, which stay what they are for every comparison."""

    def __init__(self, fill: float, rows: bool) -> None:
        super().__init__()
        self.fill, self.rows, self.times = fill, rows, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        layer = F.linear if self.rows else F.embedding
        if func is not layer or not args or not isinstance(args[0], Tensor):
            return made
        given = args[0]
        padded = (given == self.fill).all(-1) if self.rows else given == self.fill
        if made.dim() != padded.dim() + 1 or not bool(padded.any()):
            return made
        self.times += 1
        spread = float(made.detach().abs().max()) or 1.0
        with seeded(29):
            noise = torch.randn(made.shape, dtype=torch.float64).to(made) * spread
        return torch.where(padded[..., None], made + noise, made)


def felt(padded: Padded) -> float | None:
    """How much outputs of tokens that are no padding move when padded tokens are other ones; infinite where
    padding makes them NaN, None where that cannot be tried.

    In double precision the lowest number of a narrower type may be no number any more: then the target is
    asked in its own type.
    """
    for subject, nothing in ((padded.lab.exact, padded.lab.nothing), (padded.lab.alive, 1e-6)):
        base = subject.run().output
        if base is None:
            return None
        output, times = _run_with_others(padded, subject)
        if not times or output is None or output.shape != base.shape:
            return None
        moved = _largest_move(padded, base, output)
        if moved is not None:
            return moved if moved > nothing else 0.0
    return float("inf")


def _run_with_others(padded: Padded, subject: Subject) -> tuple[Tensor | None, int]:
    """The output with other padded tokens, and how often a layer was given them."""
    held = subject.arguments[padded.name]
    if padded.fill is None:
        return subject.run({padded.name: _others(padded).to(held.dtype)}).output, 1
    with _Shaken(padded.fill, held.is_floating_point()) as shaken:
        return subject.run().output, shaken.times


def _largest_move(padded: Padded, base: Tensor, output: Tensor) -> float | None:
    """Relative to the largest output; None where what counts of the output is no number."""
    lab = padded.lab
    batch, token = lab.output_axes(base)
    own = padded.name in (lab.main, *lab.together)
    kept = torch.ones(base.shape, dtype=torch.bool)
    if own and batch is not None and token is not None:
        shape = [n if axis in (batch, token) else 1 for axis, n in enumerate(base.shape)]
        marks = torch.from_numpy(np.array(padded.pads if batch < token else padded.pads.T))
        kept = (~marks.reshape(shape)).expand(base.shape)
    one, two = base.detach().double().cpu()[kept], output.detach().double().cpu()[kept]
    if not bool(one.isfinite().all()):
        return None
    return float((one - two).abs().nan_to_num(float("inf")).max()) / largest(one) if one.numel() else 0.0


def _others(padded: Padded) -> Tensor:
    lab = padded.lab
    value, axis = lab.exact.arguments[padded.name], token_axis(lab, padded.name)
    where = torch.from_numpy(np.array(padded.pads if axis == 1 else padded.pads.T)).to(value.device)
    where = where.reshape(*where.shape, *[1] * (value.dim() - 2))
    return torch.where(where, lab.other(value, value, 23), value)


def masked_by_others(padded: Padded, numbers: set[int]) -> set[int]:
    """Those attentions that hide the padding once a mask of it is handed to an argument that was left out:
    whoever calls the target is to bring it."""
    lab = padded.lab
    arguments = lab.exact.arguments
    free = [
        name
        for name, parameter in parameters_of(lab.exact.module).items()
        if parameter.default is None and arguments.get(name) is None
    ]
    hidden: set[int] = set()
    for name in free[:4]:
        for mask in _ways(torch.from_numpy(np.array(padded.pads))):
            if lab.spent:
                break
            run = replace(padded, lab=called_with(lab, {name: mask}))
            if run.lab.recording.error is None:
                hidden |= {n for n, seen in attentions(run).items() if seen == "hidden"} & numbers
    return hidden


def _ways(pads: Tensor) -> Iterator[Tensor]:
    """A mask of padding in the ways in which one is handed over."""
    for marks in (pads, ~pads, (~pads).long()):
        yield marks
        yield marks[:, None]
        yield marks[:, None, None]
