"""AS210: the number of attention maps is not the number of heads.

The module says how many heads it has, and its softmax makes another number of maps for each text.

It is bad because more heads are then only a number: there is one map, or heads share maps that should be
their own.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads = 4
            self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            return F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), is_causal=True)

Cure: cut the projections into heads before the product: `view(b, t, heads, -1).transpose(1, 2)`.

    - return F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), is_causal=True)
    + b, t, c = x.shape
    + q, k, v = (f(x).view(b, t, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
    + y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    + return y.transpose(1, 2).reshape(b, t, c)
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from attnscope.axes.vocabulary import letter_of
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import is_over_tokens
from attnscope.checks.places import declared
from attnscope.diagnostic import Diagnostic, Label, Tried

CODE = "AS210"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    if not lab.maps or not all(is_over_tokens(one, lab) for one in lab.maps) or lab.main is None:
        return
    by_call: dict[int, int] = {}
    events: dict[int, int] = {}
    for one in lab.maps:
        owner = _owner(lab, one.found.call)
        leading = int(one.applied.shape[0])
        by_call[owner] = by_call.get(owner, 0) + leading
        events.setdefault(owner, one.event)
    shown: set[str] = set()
    for call, maps in by_call.items():
        module = lab.made_by(call)
        if module is None:
            continue
        said = _heads(module)
        if said is None:
            continue
        name, heads = said
        each = maps // lab.batch if maps % lab.batch == 0 else maps
        good = each % heads == 0
        said_so = f"{each} maps, `{name}` is {heads}"
        if said_so not in shown:
            yield Tried("heads", said_so, good)
        shown.add(said_so)
        if good:
            continue
        declared_at = declared(module, name)
        labels = [Label(declared_at, f"`{name}` is {heads}")] if declared_at is not None else []
        yield Diagnostic(
            CODE,
            "error",
            f"there are {each} attention maps and {heads} heads"
            if each != 1
            else f"there is one attention map for {heads} heads",
            lab.span(events[call]),
            f"{each} for each entry of the batch",
            tuple(labels),
            (),
            "cut q, k and v into heads before the product: `view(b, t, heads, -1).transpose(1, 2)`",
            (("", "number"), (name, str(heads)), ("maps for each entry", str(each))),
        )
        return


def _owner(lab: Lab, call: int) -> int:
    """The call of the nearest module of the user's own that says how many heads it has."""
    current = call
    while current >= 0:
        module = lab.made_by(current)
        if module is not None and _heads(module) is not None:
            return current
        current = lab.recording.calls[current][1]
    return call


def _heads(module: nn.Module) -> tuple[str, int] | None:
    if type(module).__module__.startswith("torch.nn"):
        return None
    for name, value in list(vars(module).items()):
        if type(value) is int and value > 1 and letter_of(name) == "H":
            return name, value
    return None
