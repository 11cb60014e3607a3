"""AS205: the mask is applied after the softmax.

The softmax has already shared the weight out among all keys, the masked ones too. Setting those to zero
afterwards leaves rows that sum to less than 1, by how much depends on the masked keys.

It is bad because the masked keys are still felt: in the denominator of each weight.

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
            weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1) * keep
            return (weights @ v).transpose(1, 2).reshape(b, t, c)

Cure: mask the scores before the softmax, with -inf; or divide each row by its sum afterwards.

    - weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1) * keep
    + scores = q @ k.transpose(-2, -1) / 8**0.5
    + weights = scores.masked_fill(keep == 0, float("-inf")).softmax(-1)
"""

from __future__ import annotations

from collections.abc import Iterator

from attnscope.checks.as225_row_sums import sums_of
from attnscope.checks.lab import Lab
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS205"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    for one in lab.maps:
        found = sums_of(one, lab)
        if found is None or found.kind != "masked":
            continue
        softmax = lab.span(one.event)
        span = lab.span(found.event) or softmax
        labels = [Label(softmax, "rows sum to 1 here")] if softmax is not None and softmax != span else []
        rows = [("query", "row sum"), *((str(i), num(total)) for i, total in enumerate(found.rows[:8]))]
        yield Diagnostic(
            CODE,
            "error",
            "the mask is applied after the softmax: rows no longer sum to 1",
            span,
            f"rows sum to {num(found.low)} … {num(found.high)} after this",
            tuple(labels),
            ("masked keys are still in each row's denominator",),
            'mask before the softmax: `scores.masked_fill(mask == 0, float("-inf"))`',
            tuple(rows),
        )
        return
