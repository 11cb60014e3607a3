"""AS211: a `view` mixes tokens, heads or channels.

`view` and `reshape` keep the order of numbers in memory. They can cut an axis (`C → H, D`) or join
neighbours; they cannot exchange two axes. `view(b, heads, t, d)` of `[B, T, C]` does not move heads
before tokens: it cuts the memory anew, and each "head" holds a block of whole tokens.

It is bad because shapes fit, and each token works on the numbers of others.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (f(x).view(b, 2, t, 8) for f in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.reshape(b, t, c)

Cure: `view(b, t, heads, d).transpose(1, 2)` to split, `transpose(1, 2).reshape(b, t, c)` to merge.

    - q, k, v = (f(x).view(b, 2, t, 8) for f in (self.q, self.k, self.v))
    + q, k, v = (f(x).view(b, t, 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v))

    - return y.reshape(b, t, c)
    + return y.transpose(1, 2).reshape(b, t, c)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from attnscope.checks.as201_future import grid
from attnscope.checks.blame import tokens_cut
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import leak_of
from attnscope.checks.mixing import Mixing, mixing_of
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Label, Tried
from attnscope.sandbox.state import seeded

CODE = "AS211"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    mixing = mixing_of(lab)
    if mixing is None or not mixing.tokens:
        return
    proof = _proof(lab)
    if proof is None:
        return
    cut = _cut_before(lab, mixing)
    if cut is not None:
        yield _of_a_cut(lab, mixing, cut, proof)
        return
    axes = ", ".join(f"{a} {n}" if a else str(n) for a, n in zip(mixing.names, mixing.before, strict=True))
    after = ", ".join(str(n) for n in mixing.after)
    rows = [("result", f"{mixing.what}s that it holds"), *mixing.rows]
    yield Diagnostic(
        CODE,
        "error",
        f"a `{lab.recording.events[mixing.event].op.name}` cuts tokens across heads or channels",
        lab.span(mixing.event),
        f"[{axes}] becomes [{after}]: memory is cut anew, no axis is moved",
        (),
        (proof,),
        _help(mixing),
        tuple(rows) if mixing.rows else grid(lab),
    )


def _help(mixing: Mixing) -> str:
    if len(mixing.after) > len(mixing.before):
        return "split the last axis first and move it then: `.view(b, t, heads, -1).transpose(1, 2)`"
    if len(mixing.before) == 3 and mixing.after[-1] < mixing.before[-1] and not mixing.inside:
        return (
            "split the last axis first, move it, and join it with the batch then: "
            "`.view(b, t, heads, -1).transpose(1, 2).flatten(0, 1)`"
        )
    return "bring tokens back in front first: `.transpose(1, 2).reshape(b, t, -1)`"


def _cut_before(lab: Lab, mixing: Mixing) -> int | None:
    """The step that cut the token axis itself in pieces, before the one that cannot keep them apart."""
    if not any(
        size < lab.length and (name or "").startswith("T/")
        for name, size in zip(mixing.names, mixing.before, strict=True)
    ):
        return None
    source = lab.recording.events[mixing.event].args[0]
    return tokens_cut(lab, int(source))


def _of_a_cut(lab: Lab, mixing: Mixing, cut: int, proof: str) -> Diagnostic:
    event = lab.recording.events[cut]
    source = lab.lineage.shape(next(ref for ref in lab.lineage.refs(event) if ref in lab.lineage.active))
    axis = source.index(lab.length)
    piece = lab.lineage.shape(event.outputs[0])[axis]
    before, after = (", ".join(map(str, shape)) for shape in (mixing.before, mixing.after))
    used = lab.span(mixing.event)
    return Diagnostic(
        CODE,
        "error",
        f"a `{event.op.name}` cuts the token axis, not the channels",
        lab.span(cut),
        f"axis {axis} of [{', '.join(map(str, source))}] is T: each piece has {piece} of {lab.length} tokens",
        (Label(used, f"[{before}] becomes [{after}]: tokens fill channels"),) if used is not None else (),
        (proof,),
        f"cut the last axis: `dim=-1` in `{event.op.name}`",
        (("result", f"{mixing.what}s that it holds"), *mixing.rows) if mixing.rows else grid(lab),
    )


def _proof(lab: Lab) -> str | None:
    """A number that no order of whole tokens would give: a leak, a token that is not seen, a lost
    symmetry."""
    influence = lab.influence
    if influence is None:
        return None
    if lab.causal:
        leak = leak_of(lab)
        if leak.kind not in ("none", "open"):
            t, s, moved = leak.pairs[0]
            return (
                f"output token {t} moves by {num(moved)} of the largest output when the later "
                f"token {s} is changed"
            )
    missing = [
        (t, s)
        for column, t, s in influence.pairs(future=False)
        if influence.moved[:, t, column].max() <= lab.nothing
    ]
    full = not lab.causal or leak_of(lab).kind == "none"
    if missing and full:
        t, s = missing[-1]
        return f"output token {t} does not move at all when the earlier token {s} is changed"
    if not lab.causal:
        return permuted(lab)
    return None


def permuted(lab: Lab) -> str | None:
    """Without positions and masks, exchanging input tokens exchanges output tokens and no more."""
    from attnscope.checks.as222_positions import position_steps

    base = lab.base.output
    if lab.main is None or base is None or position_steps(lab):
        return None
    axis = lab.output_axes(base)[1]
    token = lab.input_axes[1]
    if axis is None or token is None:
        return None
    with seeded(3):
        order = torch.randperm(lab.length)
    values = {name: lab.exact.arguments[name].index_select(token, order) for name in lab.together}
    outcome = lab.run(values)
    if outcome.output is None or outcome.output.shape != base.shape:
        return None
    back = outcome.output.index_select(axis, torch.argsort(order))
    moved = float(lab.difference(back, ()).max())
    if moved <= max(lab.tolerance, 1e-6):
        return None
    return f"tokens in another order give other outputs: they differ by {num(moved)} of the largest output"
