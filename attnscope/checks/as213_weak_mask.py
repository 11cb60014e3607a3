"""AS213: masked keys keep weight.

A masked score has to be so low that its exponential is 0. A mask of zeros and ones that is added to the
scores or multiplied with them, or a fill value such as -1 or 1e-9, only makes the key a little less
likely.

It is bad because each token still sees the future, a little less than the past: enough to cheat in training.

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
            scores = q @ k.transpose(-2, -1) / 8**0.5 + keep
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: `scores.masked_fill(keep == 0, float("-inf"))`; an additive mask has 0 where a query may attend and -inf
where it may not.

    - scores = q @ k.transpose(-2, -1) / 8**0.5 + keep
    + scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(keep == 0, float("-inf"))
"""

from __future__ import annotations

from collections.abc import Iterator

from attnscope.checks.as201_future import grid
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import leak_of
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS213"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    if not lab.causal:
        return
    leak = leak_of(lab)
    if leak.kind != "weak":
        return
    op = leak.detail["op"]
    made = lab.span(leak.mask)
    span = lab.span(leak.event)
    labels = [Label(made, "the mask is made here")] if made is not None and made != span else []
    if "fill" in leak.detail:
        message = f"masked scores become {num(leak.detail['fill'])}, which softmax does not see as masked"
        label = f"later scores are set to {num(leak.detail['fill'])} here"
    else:
        below, above = num(leak.detail["below"]), num(leak.detail["above"])
        word = "multiplied by" if op == "mul" else "added to" if op == "add" else "taken from"
        message = f"a mask of {below} and {above} is {word} the scores: masked keys keep weight"
        if op == "mul":
            message = f"scores are multiplied by a mask of {below} and {above}: masked keys keep weight"
        label = f"{below} on and below the diagonal, {above} above it"
    yield Diagnostic(
        CODE,
        "error",
        message,
        span,
        label,
        tuple(labels),
        (f"the largest weight on a later key is {num(leak.weight)}; it should be 0",),
        'fill the scores with float("-inf") where a query may not attend, before the softmax',
        grid(lab),
    )
