"""AS209: heads attend to heads, not tokens to tokens.

With q and k left as [B, T, H, D], `q @ kᵀ` multiplies the last two axes: the scores are [B, T, H, H].
Each token mixes its own heads, and no token sees another.

It is bad because shapes fit and the loss falls a little: the rest of the network still learns something.

Example:

    import torch
    from torch import nn

    causal = False

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            b, t, c = x.shape
            heads = 2
            q, k, v = (f(x).view(b, t, heads, c // heads) for f in (self.q, self.k, self.v))
            weights = (q @ k.transpose(-2, -1) / 8**0.5).softmax(-1)
            return (weights @ v).reshape(b, t, c)

Cure: `transpose(1, 2)` before the product, so that the last two axes are tokens and channels of one head, and
back after it.

    - q, k, v = (f(x).view(b, t, heads, c // heads) for f in (self.q, self.k, self.v))
    + q, k, v = (f(x).view(b, t, heads, c // heads).transpose(1, 2) for f in (self.q, self.k, self.v))

    - return (weights @ v).reshape(b, t, c)
    + return (weights @ v).transpose(1, 2).reshape(b, t, c)
"""

from __future__ import annotations

from collections.abc import Iterator

from attnscope.checks.as201_future import grid
from attnscope.checks.blame import heads_cut
from attnscope.checks.lab import Lab
from attnscope.checks.maps import Map
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS209"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    influence = lab.influence
    if influence is None or not lab.maps:
        return
    apart = all(
        float(influence.moved[:, t, column].max()) <= lab.nothing
        for column, s in enumerate(influence.positions)
        for t in range(influence.length)
        if s != t
    )
    if not apart:
        return
    for one in lab.maps:
        if one.applied is None or not _over_heads(one, lab):
            continue
        product = one.found.product
        used = lab.span(product.event) if product is not None else None
        label = (
            f"the scores are [{', '.join(str(n) for n in one.found.shape)}]: heads by heads for each token"
        )
        cut = lab.span(heads_cut(lab, product.left)) if product is not None else None
        span, labels = used or lab.span(one.event), []
        if cut is not None and span is not None:
            labels = [Label(span, label)]
            span, label = cut, "heads stay behind tokens"
        yield Diagnostic(
            CODE,
            "error",
            "heads attend to heads: no token sees another",
            span,
            label,
            tuple(labels),
            (),
            (
                "move heads before tokens, `q.transpose(1, 2)`, `k` and `v` too, before the product; and "
                "back after it"
            ),
            grid(lab),
        )
        return


def _over_heads(one: Map, lab: Lab) -> bool:
    """The softmax's rows and columns are heads: neither is as long as the text, or their names say so."""
    if one.letters[0] in ("H", "G") or one.letters[1] in ("H", "G"):
        return True
    queries, keys = one.applied.shape[1:]
    leading = int(one.applied.shape[0])
    return lab.length not in (queries, keys) and queries == keys and leading % lab.length == 0
