"""AS207: the softmax runs over the wrong axis.

The product with the values sums over the keys, so the weights of each query have to sum to 1 over the keys.
Here they sum to 1 over another axis: over the queries, the heads or the batch.

It is bad because queries then compete for a key: a later query changes the weights of an earlier one.

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
            scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(
                torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf")
            )
            return (scores.softmax(dim=2) @ v).transpose(1, 2).reshape(b, t, c)

Cure: `softmax(dim=-1)`: the keys are the last axis of the scores, whatever their rank.

    - return (scores.softmax(dim=2) @ v).transpose(1, 2).reshape(b, t, c)
    + return (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, t, c)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import nn

from attnscope.checks.blame import constructed
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import wrong_axis
from attnscope.checks.maps import Map
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Label, Tried
from attnscope.schema import Span

CODE = "AS207"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    if lab.maps and all(one.along_keys is not None for one in lab.maps):
        good = all(not wrong_axis(one, lab) for one in lab.maps)
        yield Tried(
            "softmax axis", "the axis that the product with the values sums over" if good else "another", good
        )
    for one in lab.maps:
        if not wrong_axis(one, lab):
            continue
        rows = one.weights.sum(axis=-1)
        shape = one.found.shape
        letters = [dim.label for dim in lab.steps.axes.of.get(one.found.serial, ())]
        shown = ", ".join(
            f"{a} {n}" if a else str(n) for a, n in zip(letters or [None] * 9, shape, strict=False)
        )
        used = lab.span(one.found.used_by)
        dim = one.found.dim
        name = letters[dim] if dim < len(letters) and letters[dim] else ""
        over = {"T": "the queries", "H": "the heads", "B": "the batch"}.get(name or "", f"axis {dim}")
        labels = (
            [Label(used, f"this product sums over axis {(one.key_axis or -1) % len(shape)} of the weights")]
            if used
            else []
        )
        span, normalises = lab.span(one.event), f"normalises axis {dim} of [{shown}]"
        made = _constructed(lab, one)
        if made is not None:
            labels = [*([Label(span, normalises)] if span is not None else []), *labels]
            span, normalises = made, f"axis {dim} is chosen here"
        yield Diagnostic(
            CODE,
            "error",
            f"the softmax runs over {over}, not over the keys",
            span,
            normalises,
            tuple(labels),
            (),
            "use `dim=-1`: the last axis of the scores are the keys",
            (
                ("sum of the weights", "smallest", "largest"),
                ("over the keys", num(np.nanmin(rows)), num(np.nanmax(rows))),
                (f"over axis {dim}", "1", "1"),
            ),
        )
        return


def _constructed(lab: Lab, one: Map) -> Span | None:
    """The constructor's statement that chose the axis, where the softmax is a module's."""
    part = lab.made_by(lab.recording.events[one.event].call)
    if not isinstance(part, nn.Softmax | nn.LogSoftmax):
        return None
    return constructed(lab.recording.root, part)
