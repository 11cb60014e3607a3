"""AS212: the entries of a batch see each other.

One entry of the input is changed, and the output of another entry moves. Either the module reads the batch
axis as the token axis (`nn.MultiheadAttention` wants [T, B, C] unless it is told `batch_first=True`), or a
`view` mixes entries.

It is bad because the result of one text then depends on which others are computed beside it.

Example:

    import torch
    from torch import nn

    causal = False

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

Cure: `batch_first=True`, or `transpose(0, 1)` before and after; fold heads into the batch in the order in
which they are unfolded.

    - self.attention = nn.MultiheadAttention(16, 2)
    + self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import nn

from attnscope.checks.blame import constructed
from attnscope.checks.lab import Lab
from attnscope.checks.mixing import mixing_of
from attnscope.checks.places import num
from attnscope.checks.subject import parts
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS212"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    crossing = lab.crossing
    if crossing is None:
        return
    tolerance = lab.tolerance
    first, last = crossing[0], crossing[1]
    others = np.concatenate([first[1:], last[:-1]])
    worst = float(others.max()) if others.size else 0.0
    held = worst <= tolerance
    yield Tried("batch", f"other entries move by {num(worst)}" if worst else "no entry moves another", held)
    if held:
        return
    seq_first = _tokens_do_not_mix(lab)
    module = _sequence_first(lab)
    mixing = mixing_of(lab)
    labels: list[Label] = []
    rows: tuple[tuple[str, str], ...] = ()
    if mixing is not None and mixing.entries:
        span = lab.span(mixing.event)
        label = "entries of the batch are cut into one another here"
        help_ = "exchange axes with `transpose` or `permute`; `view` only cuts memory"
        rows = (("result", f"{mixing.what}s that it holds"), *mixing.rows)
    elif module is not None:
        name, part = module
        event = next((m.event for m in lab.maps), None)
        span = lab.span(event)
        label = f"axis 0 of the input, the batch, is the token axis of `{name or type(part).__name__}`"
        made = constructed(lab.subject.module, part)
        if made is not None:
            labels += [Label(span, label)] if span is not None else []
            span, label = made, "made without batch_first=True: it wants [T, B, C]"
        help_ = "pass `batch_first=True`, or give it `x.transpose(0, 1)` and transpose the result back"
    else:
        span = lab.span(next((m.event for m in lab.maps), None))
        label = "this attention joins entries of the batch"
        help_ = "keep the batch the first axis of q, k and v in every step"
        if seq_first:
            help_ = "the module takes axis 0 as tokens: move the batch to axis 1, or say --layout tbc"
    notes = [
        f"when entry 0 of the batch is changed, another moves by {num(worst)} of the largest output",
    ]
    if seq_first:
        notes.append("tokens of one entry do not see each other at all")
    grid = [("output of \\ changed", "entry 0", f"entry {lab.batch - 1}")]
    grid += [(f"entry {i}", num(first[i]), num(last[i])) for i in range(min(lab.batch, 6))]
    yield Diagnostic(
        CODE, "error", "entries of the batch see each other", span, label, tuple(labels), tuple(notes), help_,
        rows or tuple(grid),
    )  # fmt: skip


def _tokens_do_not_mix(lab: Lab) -> bool:
    influence = lab.influence
    if influence is None:
        return False
    return all(
        float(influence.moved[:, t, column].max()) <= lab.nothing
        for column, s in enumerate(influence.positions)
        for t in range(influence.length)
        if s != t
    )


def _sequence_first(lab: Lab) -> tuple[str, nn.Module] | None:
    for path, part in parts(lab.subject.module):
        if type(part).__module__.startswith("torch.nn") and vars(part).get("batch_first") is False:
            return path, part
    return None
