"""AS208: the scores are scaled wrongly.

The product of two vectors of D numbers grows like √D, so scores are divided by √D before the softmax.
Here the factor is missing, there twice, upside down, or made of another dimension.

It is bad because scores that are too large make the softmax one-hot: its gradient vanishes and training
stalls. Scores that are too small make every token attend to all alike.

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
            scores = (q @ k.transpose(-2, -1)).masked_fill(
                torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf")
            )
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)

Cure: divide `q @ kᵀ` once by the square root of the size that it sums over: the head dimension.

    - scores = (q @ k.transpose(-2, -1)).masked_fill(
    + scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attnscope.checks.evidence import mask_sources
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import held
from attnscope.checks.maps import NOTHING, Map
from attnscope.checks.places import num
from attnscope.checks.scales import Scale, others_of, scale_of, scale_since
from attnscope.checks.severity import Kind, severity
from attnscope.diagnostic import Diagnostic, Label, Severity, Tried
from attnscope.ops.catalog import PRODUCTS, SUMS, plain

CODE = "AS208"
_DESIGNS = (
    "GPT-Neo and T5 leave 1/√D out by design; where that is meant, `# attnscope: ignore[AS208]` on the line "
    "or `--ignore AS208` says so"
)
_ONE = "an explicit factor of 1 stands there: meant, as it seems"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    told = False
    for one in lab.maps:
        scale = scale_of(one, lab)
        fault = None if scale is None or scale.right else _fault(scale, one, lab)
        missing = (
            fault is not None and scale is not None and math.isclose(abs(scale.found), 1.0, rel_tol=4e-3)
        )
        judged = None
        if fault is not None and scale is not None:
            judged = severity("scale missing" if missing else "scale wrong", meant(scale, one, lab))
        if (scale is None or not scale.right) and judged != "error":
            odd = _odd(one, lab)
            if odd is not None:
                scale, fault = odd
                judged, missing = severity("scale of its own", ()), False
        if scale is None:
            continue
        if not told or judged is not None:
            shown = f"{num(scale.found)}; 1/√{scale.size} is {num(scale.size**-0.5)}"
            yield Tried("scale", shown, judged is None)
            told = True
        if fault is not None and judged is not None:
            yield _finding(lab, scale, one, fault, judged, missing)
            return


def _odd(one: Map, lab: Lab) -> tuple[Scale, tuple[str, str, str]] | None:
    """An attention that scales otherwise than all its equals do, and the message, label and help for it."""
    scale, others = scale_since(one, lab), others_of(one, lab)
    if scale is None or others is None:
        return None
    rest = f"{others.number} other attentions like it"
    said = (
        f"scores are scaled by {num(scale.found)}, those of {rest} by {num(others.found)}",
        "scaled here" if scale.explicit else "the scores are not scaled",
        f"scale as the others do: by {num(others.found)}",
    )
    return scale, said


def _finding(
    lab: Lab, scale: Scale, one: Map, fault: tuple[str, str, str], judged: Severity, missing: bool
) -> Diagnostic:
    message, label, help_ = fault
    product = lab.span(scale.event)
    span = lab.span(scale.factors[-1][1]) if scale.factors else product
    labels = [Label(product, f"sums {scale.size} terms")] if product is not None and product != span else []
    for factor, index in scale.factors[:-1]:
        where = lab.span(index)
        if where is not None and where != span:
            labels.append(Label(where, f"multiplied by {num(factor)} here"))
    notes = () if not missing else (_ONE,) if judged == "note" and scale.explicit else (_DESIGNS,)
    return Diagnostic(
        CODE, judged, message, span, label, tuple(labels), notes, help_,
        _evidence(scale, one, lab),
    )  # fmt: skip


def _evidence(scale: Scale, one: Map, lab: Lab) -> tuple[tuple[str, ...], ...]:
    rows = [("", "value"), ("head dimension D", str(scale.size)), ("1/√D", num(scale.size**-0.5))]
    rows.append(("scale that was found", num(scale.found)))
    scores = one.found.tensors.get("scores")
    if scores is not None and scores.numel() > 1:
        rows.append(("spread of the scores", num(float(scores.double().std()))))
    return tuple(rows)


def _fault(scale: Scale, one: Map, lab: Lab) -> tuple[str, str, str] | None:
    """Message, label and help; None for a scale of the module's own (a temperature, 1/D as in muP)."""
    size, found = scale.size, abs(scale.found)
    right = size**-0.5
    ratio = found / right
    times = f"{num(ratio)} × too large" if ratio > 1 else f"{num(1 / ratio)} × too small"
    help_ = f"divide the scores by √{size} once: `q @ k.transpose(-2, -1) / q.size(-1) ** 0.5`"

    def is_(value: float) -> bool:
        return math.isclose(found, value, rel_tol=4e-3)

    if is_(1.0):
        return (f"scores are {times}: 1/√{size} is missing", "the scores are not scaled", help_)
    if is_(size**0.5) or is_(float(size)):
        said = f"√{size}" if is_(size**0.5) else str(size)
        return (
            f"scores are multiplied by {said} and not divided by √{size}: {times}",
            f"here by {num(scale.factors[-1][0]) if scale.factors else num(found)}",
            help_,
        )
    if is_(1 / size):
        twice = sum(math.isclose(factor, right, rel_tol=1e-3) for factor, _ in scale.factors) >= 2
        if twice:
            return (f"scores are scaled by 1/√{size} twice: {times}", "scaled here, and before", "scale once")
        return None
    if is_(size**-0.25):
        return (f"scores are {times}: D^-0.25 is applied to one of q and k alone", "scaled by D^-0.25", help_)
    for text, value in _others(lab, one, size):
        if is_(value):
            return (
                f"scores are scaled by 1/√{text}, the head dimension is {size}: {times}",
                f"scaled by 1/√{text}",
                help_,
            )
    return None


def _others(lab: Lab, one: Map, size: int) -> list[tuple[str, float]]:
    """1/√ of the other dimensions at hand, in words: `24 (the width)`."""
    made: dict[int, str] = {}
    heads = one.shape[1]
    if lab.main is not None and lab.tensor.is_floating_point():
        made[int(lab.tensor.shape[-1])] = "the width"
    if heads > 1:
        made[heads * size] = "the width of all heads"
        made.setdefault(heads, "the number of heads")
    made.setdefault(lab.length, "the length of the text")
    made.setdefault(lab.batch, "the batch")
    return [(f"{n} ({what})", n**-0.5) for n, what in made.items() if n > 1 and n != size]


def meant(scale: Scale, one: Map, lab: Lab) -> set[Kind]:
    """What of the data flow shows that a module means its scale: never a name, always a step."""
    found, lineage = one.found, lab.lineage
    product = found.product
    if product is None:
        return set()
    kinds: set[Kind] = {"factor"} if scale.explicit else set()
    anchors = lineage.gain(product.left).anchors | lineage.gain(product.right).anchors
    made = {lineage.events[i].op.name if i >= 0 else "argument" for i in anchors}
    projected = made & (PRODUCTS | {"linear"})
    if not projected or any(kind in ("argument", "embedding") or kind.startswith("conv") for kind in made):
        kinds.add("raw")
    kinds |= added(one, lab)
    if not kinds and _shares_its_line(scale, lab):
        kinds.add("given bias")
    if kinds == {"factor"} and _alone(scale, lab):
        return set()
    return kinds


def _alone(scale: Scale, lab: Lab) -> bool:
    """Whether every other attention of the target that can be judged is scaled by its 1/√D: an explicit
    factor of 1 is then no design."""
    part = lab.subject.part
    whole: Lab = part.whole if part is not None and part.whole is not None else lab
    scales = [found for one in whole.all_maps if (found := scale_of(one, whole)) is not None]
    others = [one for one in scales if not math.isclose(one.found, scale.found, rel_tol=1e-2)]
    return all(one.right for one in others) and 2 * len(others) > len(scales)


def added(one: Map, lab: Lab) -> set[Kind]:
    """What is added to the scores, other than a mask: a learned bias, or one that was handed in."""
    found, lineage = one.found, lab.lineage
    if found.product is None:
        return set()
    kinds: set[Kind] = set()
    scores = lineage.offspring(found.product.event)
    arguments = {serial for _, serial in lab.recording.arguments}
    for index in lineage.score_path(found) or []:
        event = lineage.events[index]
        if plain(event.op.name) not in SUMS:
            continue
        for ref in lineage.refs(event):
            if ref in scores:
                continue
            sources = mask_sources(lab, ref)
            if sources & lineage.learned or any(
                lineage.events[lineage.producer[s]].op.name == "embedding"
                for s in sources if s in lineage.producer
            ):  # fmt: skip
                kinds.add("bias")
            elif sources & arguments and _many_valued(held(lab, ref)):
                kinds.add("given bias")
    return kinds


def _shares_its_line(scale: Scale, lab: Lab) -> bool:
    """Whether another attention of the target, made by the same line of source, adds a learned bias: T5's
    later layers and its cross-attention leave to the first layer what shows that no scale is meant."""
    whole: Lab | None = lab.subject.part.whole if lab.subject.part is not None else lab
    line = lab.span(scale.event)
    if whole is None or line is None:
        return False
    return any(
        one.found.product is not None
        and whole.span(one.found.product.event) == line
        and "bias" in added(one, whole)
        for one in whole.maps
    )


def _many_valued(values: Any) -> bool:
    """More numbers than a mask has that allows and blocks."""
    if values is None or values.dtype == np.bool_:
        return False
    finite = values[np.isfinite(values) & (values > NOTHING)]
    return bool(np.unique(finite).size > 2)
