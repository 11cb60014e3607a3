"""AS225: the weights of a query do not sum to 1.

Something between the softmax and the product with the values rescales the weights: most often the scale
`1/√D`, which belongs to the scores.

It is bad because the scores stay too large, which makes the softmax too sharp, and the result becomes too
small.

Example:

    import torch
    from torch import nn

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            scores = (q @ k.transpose(-2, -1)).masked_fill(
                torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf")
            )
            weights = scores.softmax(-1) / 8**0.5
            return (weights @ v).transpose(1, 2).reshape(b, t, c)

Cure: scale the scores, before the softmax, and leave the weights as the softmax gives them.

    - scores = (q @ k.transpose(-2, -1)).masked_fill(
    + scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(

    - weights = scores.softmax(-1) / 8**0.5
    + weights = scores.softmax(-1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnscope.checks.lab import Lab
from attnscope.checks.leaks import after_event, wrong_axis
from attnscope.checks.maps import Map
from attnscope.checks.places import formula, num
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS225"


@dataclass(frozen=True)
class Sums:
    """Row sums of what was applied. `kind`: `scaled` (all rows by one factor) or `masked` (entries set to
    zero)."""

    kind: str
    low: float
    high: float
    rows: tuple[float, ...]
    event: int | None


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    worst, tried = 0.0, 0
    for one in lab.maps:
        if one.applied is None or wrong_axis(one, lab):
            continue
        off = _off(one)
        if off is not None:
            tried += 1
            worst = max(worst, off)
    faults = [found for found in (sums_of(one, lab) for one in lab.maps) if found is not None]
    if tried:
        meant = worst >= 1e-3 and not faults  # a sink, a gate, one map less another
        yield Tried(
            "rows sum to 1", f"± {num(worst)}{', by what the module learns' if meant else ''}", not faults
        )
    for one in lab.maps:
        found = sums_of(one, lab)
        if found is None or found.kind != "scaled":
            continue
        softmax = lab.span(one.event)
        span = lab.span(found.event) or softmax
        labels = [Label(softmax, "rows sum to 1 here")] if softmax is not None and softmax != span else []
        sizes = {"D": int(one.found.tensors["q"].shape[-1])} if "q" in one.found.tensors else {}
        said = formula(found.low, sizes) if sizes else ""
        yield Diagnostic(
            CODE,
            "error",
            f"the weights of each query sum to {num(found.low)}, not to 1",
            span,
            (
                f"the weights are scaled by {num(found.low)}{f', which is {said},' if said else ''} "
                "after the softmax"
            ),
            tuple(labels),
            (),
            "scale the scores before the softmax, not the weights after it",
            (("rows", "sum"), ("smallest", num(found.low)), ("largest", num(found.high))),
        )
        return


def _off(one: Map) -> float | None:
    sums = one.applied.sum(axis=-1)
    sums = sums[np.isfinite(sums) & (np.abs(sums) > 1e-12)]
    return float(np.abs(sums - 1).max()) if sums.size else None


def sums_of(one: Map, lab: Lab) -> Sums | None:
    """What is wrong with the row sums of one attention; None where nothing is, or where it is deliberate."""
    if one.applied is None or one.weights is None or one.weights.shape != one.applied.shape:
        return None
    if one.along_keys is not True or one.found.source != "softmax":
        return None
    sums = one.applied.sum(axis=-1)
    empty = np.abs(one.applied).max(axis=-1) < 1e-12
    kept = sums[~empty & np.isfinite(sums)]
    if not kept.size or float(np.abs(kept - 1).max()) < 1e-3:
        return None
    if float(np.abs(np.nan_to_num(one.weights).sum(axis=-1)[~empty] - 1).max()) > 1e-3:
        return None
    event = after_event(one, lab)
    if event is None or not _constant(event, lab):
        return None  # a learned gate, dropout or heads that are mixed: meant
    low, high = float(kept.min()), float(kept.max())
    if high - low < 1e-4 * max(abs(high), 1e-12):
        return Sums("scaled", low, high, tuple(float(x) for x in kept[:8]), event)
    ratio = one.applied / np.where(one.weights == 0, 1.0, one.weights)
    binary = np.isclose(ratio, 0, atol=1e-9) | np.isclose(ratio, 1, atol=1e-6) | (one.weights == 0)
    if bool(binary.all()):
        rows = tuple(float(x) for x in sums[0][:8])
        return Sums("masked", low, high, rows, event)
    return None


def _constant(index: int, lab: Lab) -> bool:
    """Whether a step changes the weights by what is neither learned nor made from the input."""
    lineage = lab.lineage
    event = lineage.events[index]
    masks = {serial for name, serial in lab.recording.arguments if name != lab.main}
    weights = lineage.weights_among(event)
    others = [ref for ref in lineage.refs(event) if ref not in weights]
    return all(
        (ref not in lineage.active or lineage.ancestors(ref) & masks) and ref not in lineage.learned
        for ref in others
    )
