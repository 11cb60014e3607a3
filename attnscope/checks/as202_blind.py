"""AS202: a token sees nothing of the past, or not itself.

When an earlier token is changed, no later output moves; or an output does not depend on its own token.

It is bad because the layer is then no attention over the text: it works on each token alone, or on one token
for all.

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
            scores = q @ k.transpose(-2, -1) / 8**0.5
            scores = scores.masked_fill(torch.eye(t, device=x.device) == 0, float("-inf"))
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: look at the mask that is really applied (`attnscope trace … --show mask`): each row should allow the
token itself and those before it.

    - scores = scores.masked_fill(torch.eye(t, device=x.device) == 0, float("-inf"))
    + scores = scores.masked_fill(torch.ones(t, t, device=x.device).tril() == 0, float("-inf"))
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnscope.checks.as201_future import grid
from attnscope.checks.blame import mask_span
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL, is_over_tokens, leak_of, mask_of, visible
from attnscope.checks.maps import Map
from attnscope.checks.places import counted
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS202"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    influence = lab.influence
    if influence is None or not _attends_to_itself(lab):
        return
    leak = leak_of(lab)
    if leak.kind in ("inverted", "mixed", "axis"):
        return
    pairs = influence.pairs(future=False)
    seen = [(t, s) for column, t, s in pairs if influence.moved[:, t, column].max() > lab.nothing]
    own = [
        s
        for column, s in enumerate(influence.positions)
        if influence.moved[:, s, column].max() <= lab.nothing and not lab.empty[:, s].all()
    ]
    if not lab.causal:
        future = influence.pairs(future=True)
        pairs = [*pairs, *future]
        seen += [(t, s) for column, t, s in future if influence.moved[:, t, column].max() > lab.nothing]
    yield Tried("past", f"{len(seen)} of {counted(len(pairs), 'pair')} connected", bool(seen) or not pairs)
    one = next((m for m in lab.maps if is_over_tokens(m, lab)), None)
    if pairs and not seen:
        yield _finding(lab, one, "no token sees any other", "each row keeps no key but its own")
    elif len(own) >= max(2, len(influence.positions) - 1):
        yield _finding(
            lab, one, "outputs do not depend on their own token", "the same few keys are kept in every row"
        )
    elif lab.causal and one is not None:
        yield from _diagonal(lab, one)


def _attends_to_itself(lab: Lab) -> bool:
    """Some attention has keys that come from the module's own tokens."""
    if not lab.maps or lab.recording.error is not None:
        return False
    main = {serial for name, serial in lab.recording.arguments if name in lab.together}
    for one in lab.maps:
        product = one.found.product
        if product is None or one.applied is None:
            continue
        keys = lab.lineage.ancestors(product.right)
        queries = lab.lineage.ancestors(product.left)
        if keys & main and queries & main and one.applied.shape[2] > 1:
            return True
    return False


def _diagonal(lab: Lab, one: Map) -> Iterator[Diagnostic]:
    """Each token may see the past and not itself, in a layer whose queries and keys are not the same
    thing."""
    seen = visible(one) > SMALL
    usable = seen.any(axis=1)
    past = not seen[np.triu_indices(lab.length, 1)].any()
    if np.diag(seen).any() or usable.sum() < 2 or not past or one.found.mask_serial is None:
        return
    product = one.found.product
    if product is not None and product.left == product.right:
        return
    yield _finding(lab, one, "tokens do not see themselves", "the diagonal is blocked")


def _finding(lab: Lab, one: Map | None, message: str, label: str) -> Diagnostic:
    span, labels = None, []
    if one is not None:
        _, apply, _ = mask_of(one, lab)
        used = lab.span(apply if apply is not None else one.event)
        span = mask_span(lab, one) or used
        if used is not None and used != span:
            labels.append(Label(used, "the mask is applied here" if apply is not None else "the weights"))
    elif lab.maps:
        span = lab.span(lab.maps[0].event)
        label = "this attention does not join tokens"
    return Diagnostic(
        CODE, "error", message, span, label, tuple(labels), (),
        "allow each query its own key and those before it", grid(lab),
    )  # fmt: skip
