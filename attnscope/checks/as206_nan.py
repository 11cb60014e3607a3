"""AS206: outputs are NaN.

Most often a row of the scores is masked completely: softmax of nothing but -inf is 0/0. Or a mask is made as
`(1 - keep) * -inf`, which is NaN wherever `keep` is 1.

It is bad because one NaN in the loss makes every weight of the model NaN at the next step.

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
            keep = torch.ones(t, t, device=x.device).tril()
            scores = q @ k.transpose(-2, -1) / 8**0.5 + (1.0 - keep) * float("-inf")
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: `scores.masked_fill(keep == 0, float("-inf"))`; leave each query at least one key, or take what is
padded out of the loss and out of the batch.

    - scores = q @ k.transpose(-2, -1) / 8**0.5 + (1.0 - keep) * float("-inf")
    + scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(keep == 0, float("-inf"))
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from attnscope.checks.lab import Lab
from attnscope.checks.numbers import first_nan
from attnscope.checks.places import counted
from attnscope.diagnostic import Diagnostic, Label, Tried
from attnscope.ops.catalog import plain

CODE = "AS206"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    output = lab.own.output
    if output is None or output.is_meta:
        return
    bad = int(torch.isnan(output.detach()).sum())
    dtype = str(output.dtype).removeprefix("torch.")
    yield Tried("finite", f"{bad} of {output.numel()} outputs are NaN in {dtype}", bad == 0)
    if bad == 0 or any(bool(torch.isnan(t).any()) for t in _given(lab)):
        return
    exact = lab.base.output
    if lab.precise and exact is not None and not bool(torch.isnan(exact).any()):
        return  # in double precision all is well: the type is too narrow, which AS223 speaks of
    recording = lab.own_recording
    origin = first_nan(recording)
    if origin is None:
        span = lab.span(lab.maps[0].event) if lab.maps else None
        yield Diagnostic(CODE, "error", f"{bad} of {output.numel()} outputs are NaN", span, "")
        return
    from attnscope.checks.lineage import Lineage

    lineage = Lineage(recording)
    event = recording.events[origin.event]
    name = event.op.name
    labels = []
    cause = lineage.span(origin.cause)
    span = lineage.span(origin.event)
    if cause is not None and cause != span:
        labels.append(Label(cause, "made infinite here"))
    if origin.rows:
        message = f"{counted(origin.rows, 'row')} of the scores are masked completely: their softmax is NaN"
        label = "softmax of nothing but -inf"
        help_ = "leave every query one key that it may attend to, or drop what is padded completely"
    elif plain(name) == "mul" and _times_infinity(recording, origin.event):
        message = "zero times infinity is NaN: the mask is NaN where it should let through"
        label = "0 · inf"
        help_ = "use `masked_fill`, or a finite number such as `torch.finfo(x.dtype).min`"
    elif event.depth or name in ("scaled_dot_product_attention", "multi_head_attention_forward"):
        message = "a row of the scores is masked completely: its softmax is NaN"
        label = "some query has no key that it may attend to"
        help_ = "leave every query one key that it may attend to, or drop what is padded completely"
    else:
        message = f"`{name}` makes NaN"
        label = f"{origin.count} of {origin.size} numbers are NaN after this, none before"
        help_ = "keep its inputs finite"
    yield Diagnostic(
        CODE, "error", message, span, label, tuple(labels),
        (f"{bad} of {output.numel()} outputs are NaN",), help_,
    )  # fmt: skip


def _given(lab: Lab) -> list[torch.Tensor]:
    values = lab.subject.arguments.values()
    return [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]


def _times_infinity(recording: object, index: int) -> bool:
    event = recording.events[index]  # type: ignore[attr-defined]
    return any(isinstance(x, float) and x in (float("inf"), float("-inf")) for x in event.args)
