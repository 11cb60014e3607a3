"""AS223: numbers overflow in the type that is used.

In float16 nothing is larger than 65,504. A mask of `torch.finfo(torch.float16).min` added to a score, or
two such masks added to each other, is -inf; a row of nothing but -inf makes NaN.

It is bad because the same module works in float32, and fails only where training is meant to be fast.

Example:

    import torch
    from torch import nn

    x = torch.randn(2, 6, 16, dtype=torch.float16)

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)
            nn.init.normal_(self.qkv.weight, std=4.0)

        def forward(self, x):
            b, t, c = x.shape
            low = torch.finfo(x.dtype).min
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            mask = torch.full((t, t), low, dtype=x.dtype, device=x.device).triu(1)
            padding = torch.zeros(b, 1, 1, t, dtype=x.dtype, device=x.device)
            padding[0] = low
            scores = q @ k.transpose(-2, -1) / 8**0.5 + mask + padding
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: join the masks as booleans and fill once; or add them in float32.

    - scores = q @ k.transpose(-2, -1) / 8**0.5 + mask + padding
    + scores = q @ k.transpose(-2, -1) / 8**0.5
    + scores = scores.masked_fill(mask + padding < 0, low)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnscope.checks.lab import Lab
from attnscope.checks.lineage import Lineage
from attnscope.checks.numbers import first_nan
from attnscope.checks.places import num
from attnscope.checks.subject import HALF, Subject
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS223"
# Whether a sum overflows depends on the numbers: so many inputs are drawn where the type is narrow.
_DRAWS = 16


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    if lab.own.output is None or lab.base.output is None or not lab.precise:
        return
    found = _overflowing(lab)
    if found is None:
        return
    subject, output, bad = found
    recording = lab.record(subject)
    origin = first_nan(recording)
    lineage = Lineage(recording)
    index = origin.cause if origin is not None and origin.cause is not None else _first_infinity(lineage)
    index = index if index is not None else origin.event if origin is not None else None
    dtype = str(output.dtype).removeprefix("torch.")
    labels = []
    span = lineage.span(index)
    later = lineage.span(origin.event) if origin is not None else None
    if later is not None and later != span:
        labels.append(Label(later, "and NaN comes of it here"))
    top = torch.finfo(output.dtype).max
    yield Diagnostic(
        CODE,
        "error",
        f"numbers overflow in {dtype}: outputs are NaN or infinite",
        span,
        f"the result of this step is beyond the largest {dtype}, {num(top)}",
        tuple(labels),
        (f"{int(bad.sum())} of {output.numel()} outputs are not finite in {dtype}; in float64 all are",),
        "join masks as booleans and fill once, or compute this step in float32",
    )


def _overflowing(lab: Lab) -> tuple[Subject, Tensor, Tensor] | None:
    """A call that is finite in float64 and not in its type: the given one, or one with other numbers."""
    half = lab.own.output is not None and lab.own.output.dtype in HALF
    for draw in range(_DRAWS if half and lab.main is not None else 1):
        values: dict[str, Any] = {}
        if draw:
            values = {
                name: lab.other(value, value, 100 + draw) * (1 + draw % 2)
                for name, value in lab.subject.arguments.items()
                if name in lab.together and isinstance(value, Tensor) and value.is_floating_point()
            }
            if not values or lab.spent:
                return None
        own = lab.alive.run(values) if draw else lab.own
        if own.output is None:
            return None
        bad = ~torch.isfinite(own.output.detach())
        if not bool(bad.any()):
            continue
        wide = {name: value.double() for name, value in values.items()}
        exact = lab.run(wide) if draw else lab.base
        if exact.output is None or exact.output.shape != own.output.shape:
            return None
        if bool((bad & torch.isfinite(exact.output)).any()):
            return lab.alive.with_arguments(values), own.output, bad
    return None


def _first_infinity(lineage: Lineage) -> int | None:
    for index, event in enumerate(lineage.events):
        if event.op.name in ("full", "masked_fill", "tensor", "full_like", "where") or event.values is None:
            continue
        for value in event.values:
            if value is not None and value.dtype.kind == "f" and np.isinf(value).any():
                held = [lineage.value(ref) for ref in lineage.refs(event)]
                if all(h is None or np.isfinite(h).all() for h in held):
                    return index
    return None
