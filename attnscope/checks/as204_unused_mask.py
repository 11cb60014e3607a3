"""AS204: a mask is there, and nothing uses it.

The result of `masked_fill` is thrown away, a mask is built or registered and never applied, or an argument
called mask changes nothing.

It is bad because the code reads as if attention were masked. It is not: every token sees every other one.

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
            scores.masked_fill(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: keep the result (`scores = scores.masked_fill(…)`), or fill in place with `masked_fill_`.

    - scores.masked_fill(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
    + scores = scores.masked_fill(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from torch import Tensor

from attnscope.checks.as201_future import grid
from attnscope.checks.decoding import parameters_of
from attnscope.checks.evidence import evidence_of
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import leak_of
from attnscope.checks.places import counted, declared, num
from attnscope.checks.roles import effect_of, marks, meets_scores, serial_of
from attnscope.checks.severity import Kind, severity
from attnscope.diagnostic import Diagnostic, Label, Severity, Tried
from attnscope.ops.catalog import FILLS, SUMS

CODE = "AS204"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    if lab.causal:
        leak = leak_of(lab)
        if leak.kind == "dropped":
            judged = severity("dropped", {one.kind for one in evidence_of(lab)})
            if judged is not None:
                yield _dropped(lab, judged)
            return
    yield from _argument(lab)
    yield from _source(lab)


def _dropped(lab: Lab, judged: Severity) -> Diagnostic:
    leak = leak_of(lab)
    softmax = lab.span(leak.map.event) if leak.map is not None else None
    labels = [Label(softmax, "the scores come here without it")] if softmax is not None else []
    if leak.event is None:
        span = declared(leak.detail["module"], leak.detail["name"])
        label = "registered here, and never read"
        message = f"the mask `{leak.owner}` is never used"
        help_ = f"fill the scores where `self.{leak.owner.rpartition('.')[2]}` blocks, before the softmax"
    else:
        op = leak.detail.get("op", "mask")
        span = lab.span(leak.event)
        thrown = op in FILLS | SUMS | {"mul"}
        label = "its result goes nowhere" if thrown else "made here, and never applied"
        message = (
            f"the result of `{op}` is thrown away: no mask is applied"
            if thrown
            else "a mask is made and not applied"
        )
        help_ = (
            "assign the result, or write in place with `masked_fill_`"
            if thrown
            else "apply it to the scores before the softmax"
        )
    t, s, moved = leak.pairs[0]
    return Diagnostic(
        CODE,
        judged,
        message,
        span,
        label,
        tuple(labels),
        (
            f"{len(leak.pairs)} of {counted(leak.total, 'pair')} leak:"
            f" output token {t} moves by {num(moved)} when input token {s} is changed",
        ),
        help_,
        grid(lab),
    )


def _argument(lab: Lab) -> Iterator[Diagnostic | Tried]:
    """Marks that are an argument, and met the scores or nothing at all, must change something."""
    base = lab.base.output
    if base is None or not lab.maps:
        return
    for name, value in lab.exact.arguments.items():
        if name in lab.together or marks(value) is None:
            continue
        serial, meets = serial_of(lab, name), meets_scores(lab, name)
        if not meets and (serial is None or serial in lab.lineage.users):
            continue
        moved = effect_of(lab, name)
        if moved is None:
            continue
        yield Tried(f"mask `{name}`", f"other values move outputs by {num(moved)}", moved > lab.nothing)
        kinds: set[Kind] = {"scores"} if meets else set()
        judged = severity("no effect", kinds | ({"guessed"} if name in lab.subject.guessed else set()))
        if moved <= lab.nothing and judged is not None:
            yield Diagnostic(
                CODE,
                judged,
                f"the argument `{name}` changes nothing",
                lab.span(lab.maps[0].event),
                "the scores come here without it",
                (),
                (f"with every value of `{name}` turned round, or drawn at random, the outputs are the same",),
                f"apply `{name}` to the scores before the softmax",
            )


def _source(lab: Lab) -> Iterator[Diagnostic | Tried]:
    """A second sequence that `forward` cannot do without, and that no step reads: the attention looks at the
    first alone."""
    known = parameters_of(lab.exact.module)
    for name, value in lab.exact.arguments.items():
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() != 3:
            continue
        if name in lab.together or name in lab.subject.guessed or lab.exact.axes.get(name) is None:
            continue
        asked = name in known and known[name].default is inspect.Parameter.empty
        serial = serial_of(lab, name)
        judged = severity("never read", ())
        if not asked or serial is None or not lab.maps or serial in lab.lineage.users or judged is None:
            continue
        yield Tried(f"argument `{name}`", "no step reads it", False)
        yield Diagnostic(
            CODE,
            judged,
            f"the argument `{name}` is never read: queries, keys and values come from `{lab.main}`",
            lab.span(lab.maps[0].event),
            f"nothing of `{name}` comes here",
            (),
            (f"`forward` asks for `{name}`, and no step of it was given it",),
            f"make keys and values of `{name}`, or take it out of what `forward` asks for",
        )
