"""AS224: a step writes into expanded memory.

`expand` makes no copy: all rows of the result are the same numbers in memory. What is written into one row is
written into all of them.

It is bad because a mask that is made so ends as its last row, or as the union of all rows, everywhere.
PyTorch only warns.

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
            bias = torch.zeros(1, 1, 1, t, device=x.device).expand(b, 2, t, t)
            bias.masked_fill_(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
            return ((q @ k.mT / 8**0.5 + bias).softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: write into a tensor of its own: `masked_fill` in place of `masked_fill_`, or `.clone()` first.

    - bias.masked_fill_(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
    + bias = bias.masked_fill(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnscope.checks.lab import Lab
from attnscope.diagnostic import Diagnostic, Label, Tried
from attnscope.recorder.tensors import Ref

CODE = "AS224"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    recording = lab.recording
    for index, event in enumerate(recording.events):
        if event.memory != "in-place" or not event.args or type(event.args[0]) is not Ref or event.error:
            continue
        shape, strides = recording.made[int(event.args[0])][:2]
        shared = [i for i, (n, step) in enumerate(zip(shape, strides, strict=False)) if n > 1 and step == 0]
        if not shared or not event.outputs or event.values is None:
            continue
        written = event.values[0]
        wanted = _wanted(lab, index)
        # Writing the same number everywhere, or the same row into each row, does no harm.
        if wanted is None or np.array_equal(np.broadcast_to(wanted, written.shape), written, equal_nan=True):
            continue
        made = lab.lineage.producer.get(int(event.args[0]))
        span = lab.span(index)
        where = lab.span(made)
        labels = (
            [Label(where, f"axes {', '.join(map(str, shared))} are expanded here: one row in memory for all")]
            if where
            else []
        )
        yield Diagnostic(
            CODE,
            "error",
            f"`{event.op.name}` writes into expanded memory: every row gets what is meant for one",
            span,
            "writes each row into the same memory",
            tuple(labels),
            (
                (
                    f"{int((np.broadcast_to(wanted, written.shape) != written).sum())} of {written.size} "
                    "numbers differ from what the same step gives in memory of its own"
                ),
            ),
            f"`{event.op.name.rstrip('_')}` without the underscore, or `.clone()` before",
        )
        return


def _wanted(lab: Lab, index: int) -> Any:
    """What the step would have given in memory of its own; None where that cannot be told."""
    event = lab.recording.events[index]
    if event.op.name != "masked_fill_" or len(event.args) < 2:
        return None
    from attnscope.checks.leaks import held

    before = lab.lineage.value(int(event.args[0]))
    mask = held(lab, int(event.args[1])) if type(event.args[1]) is Ref else None
    fill = event.args[2] if len(event.args) > 2 else event.kwargs.get("value")
    if before is None or mask is None or not isinstance(fill, int | float):
        return None
    return np.where(np.asarray(mask).astype(bool), fill, before)
