"""AS218: decoding with the cache gives something else than the whole text at once.

With a cache each call gets the new tokens alone and the keys and values of the old ones. The outputs have
to be those of one call with all tokens. Here they are not: positions begin at 0 again, the mask is
aligned to the wrong corner, or keys are joined on the wrong axis.

It is bad because training, which sees whole texts, is right, and what is generated is wrong.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x, past=None):
            b, t, c = x.shape
            q, k, v = (u.view(b, t, 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
            if past is not None:
                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(b, t, c), (k, v)

Cure: count positions from the length of the cache, and take the last rows of the mask: `mask[total -
t:total, :total]`. `is_causal=True` aligns to the upper left corner, for which a single new token sees the
first key alone.

    - y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    + total = k.shape[2]
    + seen = torch.ones(t, total, dtype=torch.bool, device=x.device).tril(total - t)
    + y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attnscope.checks.decoding import Decoded, decode, protocols
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import leak_of
from attnscope.checks.lineage import Lineage
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Label, Tried
from attnscope.recorder.record import Event
from attnscope.schema import Span

CODE = "AS218"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    base = lab.base.output
    if base is None or lab.main is None or lab.length < 3 or not lab.causal:
        return
    if leak_of(lab).kind != "none" or lab.influence is None or bool(base.isnan().any()):
        return
    steps = [1] * lab.length
    prompt = [max(2, lab.length // 2), *([1] * (lab.length - max(2, lab.length // 2)))]
    worst: tuple[float, Decoded, Sequence[int], Any] | None = None
    for protocol in protocols(lab):
        if lab.spent:
            return
        results = []
        for tried in (steps, prompt):
            made = decode(lab, protocol, tried)
            if made is None or made.outputs.shape != base.shape:
                continue
            axis = lab.output_axes(base)[1]
            apart = lab.difference(made.outputs, (axis,))
            results.append((float(apart.max()), made, tried, apart))
        if not results:
            continue
        top = max(results, key=lambda one: one[0])
        if top[0] <= _tolerance(lab):
            yield Tried("cached decoding", f"equals the whole text to {num(max(top[0], 1e-16))}", True)
            return
        if worst is None or top[0] < worst[0]:
            worst = top
    if worst is None:
        return
    moved, made, pieces, apart = worst
    yield Tried("cached decoding", f"differs from the whole text by {num(moved)}", False)
    yield _finding(lab, moved, made, pieces, np.asarray(apart))


def _tolerance(lab: Lab) -> float:
    return 1e-5 if lab.precise else 1e-4


def _finding(lab: Lab, moved: float, made: Decoded, pieces: Sequence[int], apart: np.ndarray) -> Diagnostic:
    first = int(np.flatnonzero(apart > _tolerance(lab))[0])
    span, label, help_, labels = _cause(lab, made)
    rows = [
        ("position", "difference"),
        *((str(i), num(x) if x > lab.nothing else "0") for i, x in enumerate(apart[:12])),
    ]
    shown = (
        "one token at a time" if set(pieces) == {1} else f"a prompt of {pieces[0]}, then one token at a time"
    )
    return Diagnostic(
        CODE, "error", ("decoding with the cache gives other outputs than the whole text at "
            "once"), span, label, labels,
        (f"{shown}: from position {first} on outputs differ, by up to {num(moved)} of the largest output",),
        help_, tuple(rows),
    )  # fmt: skip


def _last_rows(event: Event) -> str:
    """How the last rows of the mask are had: PyTorch's own flag aligns it to the first rows."""
    if event.op.name == "scaled_dot_product_attention" and event.kwargs.get("is_causal") is True:
        return (
            "`is_causal=True` lines up the first query with the first key: with a cache pass "
            "`attn_mask=torch.ones(t, total, dtype=torch.bool, device=q.device).tril(total - t)` in its place"
        )
    return "take the last rows of the mask: `mask[total - t:total, :total]`"


def _cause(lab: Lab, made: Decoded) -> tuple[Span | None, str, str, tuple[Label, ...]]:
    """What of the last call looks wrong: keys that are masked, or positions that begin anew."""
    recording = lab.record(made.last, copy=True)
    lineage = Lineage(recording)
    found = recording.capture.found if recording.capture is not None else []
    for one in found:
        allowed = one.allowed
        if allowed is None or allowed.shape[-1] < 2:
            continue
        row = allowed.reshape(-1, allowed.shape[-1]).any(axis=0)
        if not row.all():
            mask = (
                one.product.mask_event if one.product is not None and one.source == "softmax" else one.event
            )
            span = lineage.span(mask if mask is not None else one.event)
            label = f"here the token at position {made.begin} sees {int(row.sum())} of {row.size} keys"
            return span, label, _last_rows(recording.events[one.event]), ()
    for index, event in enumerate(recording.events):
        if event.op.name in ("arange", "cos", "polar") and event.code is not None:
            label = f"in the call for position {made.begin} this counts from {_start(event.args)}"
            return lineage.span(index), label, "begin positions at the length of the cache", ()
    joined = [i for i, event in enumerate(recording.events) if event.op.name == "cat"]
    span = lineage.span(joined[0]) if joined else lineage.span(found[0].event if found else None)
    return span, "keys and values are joined here", "join along the token axis, old ones first", ()


def _start(args: tuple[object, ...]) -> str:
    numbers = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    return str(numbers[0]) if len(numbers) >= 2 else "0"
