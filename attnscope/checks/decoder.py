"""Does a target decode: predict the ids of its own sequence, beside a second one that it looks at?

Trained on whole texts such a target reads its answers where it may look ahead. Data flow alone tells: the ids
that ask in attention over another sequence are embedded, and outputs have one number for each of the ids that
there are.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from attnscope.checks.decoding import parameters_of
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL, visible
from attnscope.checks.lineage import Lineage
from attnscope.checks.maps import Map, build_maps
from attnscope.checks.roles import serial_of
from attnscope.checks.sequences import asking, kinds
from attnscope.steps import Steps

_OPTIONAL = 4  # so many arguments that were not given are handed a triangle


def decodes(lab: Lab) -> bool:
    """Whether the target of this lab, or the one that this attention is a part of, decodes, and is not one
    whose caller brings the mask."""
    part = lab.subject.part
    if part is not None and part.kind != "self":
        return False
    whole: Lab = part.whole if part is not None and part.whole is not None else lab
    return whole.once(_predicts) and not whole.once(_takes_a_triangle)


def _predicts(lab: Lab) -> bool:
    if lab.recording.error is not None or "cross" not in kinds(lab).values():
        return False
    name, output = asking(lab), lab.base.output
    given = lab.exact.arguments.get(name or "")
    if name is None or output is None or not isinstance(given, Tensor) or given.is_floating_point():
        return False
    serial = serial_of(lab, name)
    for event in lab.lineage.events:
        refs = lab.lineage.refs(event)
        if event.op.name != "embedding" or len(refs) < 2 or serial not in lab.lineage.ancestors(refs[0]):
            continue
        if lab.lineage.shape(refs[1])[0] == output.shape[-1]:
            return True
    return False


def _takes_a_triangle(lab: Lab) -> bool:
    """Whether a causal triangle, handed in where nothing was, masks an attention that looks ahead."""
    known = kinds(lab)
    ahead = {
        one.number: one.applied.shape[-1]
        for one in lab.all_maps
        if known[one.number] == "self" and _looks_ahead(one)
    }
    arguments = lab.exact.arguments
    free = [
        name
        for name, parameter in parameters_of(lab.exact.module).items()
        if parameter.default is None and arguments.get(name) is None
    ]
    return any(
        _turns_causal(lab, {name: mask}, ahead)
        for name in free[:_OPTIONAL]
        for size in sorted(set(ahead.values()))
        for mask in triangles(size)
    )


def triangles(size: int) -> tuple[Tensor, ...]:
    """A causal mask in the ways in which one is handed over."""
    seen = torch.ones(size, size, dtype=torch.bool).tril()
    added = torch.zeros(size, size, dtype=torch.float64).masked_fill(~seen, float("-inf"))
    return seen, ~seen, added, seen[None], seen[None, None]


def _turns_causal(lab: Lab, given: dict[str, Tensor], ahead: Collection[int]) -> bool:
    recording = lab.record(lab.exact, given)
    if recording.error is not None:
        return False
    maps = build_maps(Lineage(recording), Steps(recording))
    return any(one.number in ahead and one.square and not _looks_ahead(one) for one in maps)


def _looks_ahead(one: Map) -> bool:
    return one.square and bool(np.triu(visible(one) > SMALL, 1).any())
