"""AS203: the mask is inverted: what should be seen is blocked, and what should be blocked is seen.

PyTorch has two conventions. `F.scaled_dot_product_attention` takes a boolean mask that is True where a query
MAY attend; `nn.MultiheadAttention` and `masked_fill` take one that is True where it may NOT.

It is bad because each token then attends to the future alone, and the last one to nothing.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            blocked = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=blocked)
            return y.transpose(1, 2).reshape(b, t, c)

Cure: hand over the opposite: `attn_mask=~blocked`, or `masked_fill(~allowed, -inf)`.

    - y = F.scaled_dot_product_attention(q, k, v, attn_mask=blocked)
    + y = F.scaled_dot_product_attention(q, k, v, attn_mask=~blocked)
"""

from __future__ import annotations

from collections.abc import Iterator

from attnscope.checks.as201_future import grid
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import leak_of
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS203"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    if not lab.causal:
        return
    leak = leak_of(lab)
    if leak.kind != "inverted" or leak.map is None:
        return
    span = lab.span(leak.event)
    made = lab.span(leak.mask)
    labels = [Label(made, "the mask is made here")] if made is not None and made != span else []
    name = f"`{leak.owner}`" if leak.owner else "the mask"
    fused = leak.map.found.source == "sdpa"
    help_ = (
        "scaled_dot_product_attention attends where a boolean mask is True: pass its opposite, `~mask`"
        if fused
        else "nn.MultiheadAttention blocks where a boolean mask is True: pass its opposite, `~mask`"
        if leak.map.found.source == "mha"
        else "fill where the mask does NOT allow: exchange the two values, or turn the comparison round"
    )
    yield Diagnostic(
        CODE,
        "error",
        "the mask is inverted: each token sees only later tokens",
        span,
        f"{name} lets through what lies above the diagonal, and blocks what lies below",
        tuple(labels),
        (
            f"the largest weight on a later key is {num(leak.weight)}, on an earlier key 0",
            "the last token has no later one: it attends to nothing",
        ),
        help_,
        grid(lab),
    )
