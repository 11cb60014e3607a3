"""AS214: two runs in `eval()` on the same input differ.

Most often dropout is active that should not be: `F.dropout` is on unless it is told `training=self.training`,
and the `dropout_p` of `scaled_dot_product_attention` is always applied.

It is bad because results cannot be reproduced, and are worse than the model is.

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
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2)
            return y.transpose(1, 2).reshape(b, t, c)

Cure: `F.dropout(x, p, training=self.training)`, `dropout_p=self.p if self.training else 0.0`, or
`nn.Dropout`.

    - y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2)
    + y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2 if self.training else 0.0)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from attnscope.checks.as220_made_in_forward import made_in_forward
from attnscope.checks.lab import Lab
from attnscope.checks.places import num
from attnscope.diagnostic import Diagnostic, Tried
from attnscope.ops.catalog import COMPARISONS, FILLS, plain
from attnscope.recorder.record import Event
from attnscope.source import node_at

CODE = "AS214"
_DROPOUTS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_dropout",
    "feature_alpha_dropout",
    "native_dropout",
)
_RANDOM = (
    "rand",
    "randn",
    "rand_like",
    "randn_like",
    "bernoulli",
    "multinomial",
    "randint",
    "randperm",
    "normal",
    "uniform",
    "exponential",
    "bernoulli_",
    "uniform_",
    "normal_",
    "exponential_",
    "gumbel_softmax",
    "poisson",
    "rrelu",
)


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    one, two = lab.run(seed=1), lab.run(seed=2)
    base = lab.base.output
    if one.output is None or two.output is None or base is None or one.output.shape != two.output.shape:
        return
    if one.output.shape != base.shape:
        return
    moved = max(float(lab.difference(x.output, ()).max()) for x in (one, two) if x.output is not None)
    held = moved <= lab.nothing * 10
    yield Tried("two runs in eval", "equal" if held else f"differ by {num(moved)}", held)
    if held or made_in_forward(lab) is not None:
        return
    index, kind = _cause(lab)
    event = lab.recording.events[index] if index is not None else None
    name = event.op.name if event is not None else ""
    if kind == "dropout":
        message = "dropout is active in eval()"
        label = f"`{name}` drops here whatever the mode"
        help_ = (
            "pass `training=self.training`"
            if "attention" not in name
            else "pass `dropout_p=self.p if self.training else 0.0`"
        )
    elif kind == "by hand":
        message = "random numbers are dropped in eval()"
        label = f"drawn anew in each call by `{name}`"
        help_ = "draw only `if self.training`"
    elif kind == "parameter":
        message = "a parameter is made anew in each forward"
        label = "random numbers that no optimizer and no checkpoint sees"
        help_ = "make it once in `__init__`: `self.name = nn.Parameter(…)`"
    else:
        message = "two runs in eval() on the same input differ"
        label = f"drawn anew in each call by `{name}`" if name else ""
        help_ = "draw once, in the constructor, and register it as a buffer; or draw only `if self.training`"
    yield Diagnostic(
        CODE,
        "error" if kind in ("dropout", "by hand", "parameter") else "note",
        message,
        lab.span(index),
        label,
        (),
        (f"outputs of two runs on the same input differ by {num(moved)} of the largest output",),
        help_,
        (
            ("run", "largest difference from the first"),
            ("seed 1", num(_moved(lab, one))),
            ("seed 2", num(_moved(lab, two))),
        ),
    )


def _moved(lab: Lab, outcome: Any) -> float:
    return float(lab.difference(outcome.output, ()).max())


def _cause(lab: Lab) -> tuple[int | None, str]:
    fallback: tuple[int | None, str] = (None, "unknown")
    for index, event in enumerate(lab.recording.events):
        name = event.op.name
        if name in _DROPOUTS or plain(name) in _DROPOUTS:
            training = event.kwargs.get("training", event.args[2] if len(event.args) > 2 else True)
            rate = event.kwargs.get("p", event.args[1] if len(event.args) > 1 else 0.5)
            if training and rate:
                return index, "dropout"
        elif name == "scaled_dot_product_attention":
            rate = event.kwargs.get("dropout_p", event.args[4] if len(event.args) > 4 else 0.0)
            if rate:
                return index, "dropout"
        elif name == "multi_head_attention_forward":
            if event.kwargs.get("training") and fallback[0] is None:
                fallback = (index, "dropout")
        elif name in _RANDOM and fallback[0] is None:
            if _in_parameter(event):
                return index, "parameter"
            fallback = (index, "by hand" if _drops(lab, index) else "random")
    return fallback


def _in_parameter(event: Event) -> bool:
    """Whether random numbers are drawn as the argument of `nn.Parameter(…)`."""
    place = node_at(event.code, event.lasti) if event.code is not None else None
    if place is None:
        return False
    file, node = place
    for parent in file.ancestors(node):
        if isinstance(parent, ast.Call) and ast.unparse(parent.func).rpartition(".")[2] == "Parameter":
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False


def _drops(lab: Lab, index: int) -> bool:
    """Whether random numbers become zeros and ones that multiply or fill activations: dropout by hand."""
    lineage = lab.lineage
    made = set(lineage.events[index].outputs)
    compared = "bernoulli" in lineage.events[index].op.name
    for event in lineage.events[index + 1 :]:
        refs = lineage.refs(event)
        if not any(ref in made for ref in refs):
            continue
        name = plain(event.op.name)
        if name in COMPARISONS | {"bernoulli"}:
            compared = True
        if compared and name in FILLS | {"mul"} and any(ref in lineage.active for ref in refs):
            return True
        made.update(event.outputs)
    return False
