"""Bool arguments of the constructor that in fact change a mask: the side that masks more is judged, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL, visible
from attnscope.diagnostic import Tried

MASKS = frozenset({"AS201", "AS202", "AS203", "AS204", "AS205", "AS206", "AS213"})
"""The codes that speak of a mask."""

_MOST = 4
_SIZE = 5_000_000


def switched(lab: Lab) -> Iterator[tuple[str, Tried | Lab]]:
    """The target constructed with each switch the other way round, where its attentions then see fewer keys;
    a row where that cannot be had. What sees more is a side that nobody asked for."""
    if lab.size > _SIZE or lab.recording.error is not None:
        return
    for said, make in islice(lab.subject.switches.items(), _MOST):
        if lab.spent:
            return
        module = make()
        if module is None or type(module) is not type(lab.subject.module):
            yield said, Tried(f"with `{said}`", "it is not constructed so", False, status="not applicable")
            continue
        other = Lab(replace(lab.subject, module=module, rebuild=None, switches={}), lab.budget)
        error = other.own.error or other.recording.error
        if error is not None:
            why = f"`forward` raises {type(error).__name__}"
            yield said, Tried(f"with `{said}`", why, False, status="not applicable")
        elif _sees_less(other, lab):
            yield said, other


def _sees_less(one: Lab, other: Lab) -> bool:
    """Whether every attention sees at most the keys that its counterpart sees, and some of them fewer."""
    pairs = list(zip(one.all_maps, other.all_maps, strict=False))
    if len(one.all_maps) != len(other.all_maps) or not pairs:
        return False
    fewer = False
    for mine, theirs in pairs:
        if mine.applied is None or theirs.applied is None:
            return False
        seen, before = visible(mine) > SMALL, visible(theirs) > SMALL
        if seen.shape != before.shape or bool((seen & ~before).any()):
            return False
        fewer |= bool(np.any(before & ~seen)) or mine.found.mask_serial != theirs.found.mask_serial
    return fewer
