"""What masks only where it is asked to: bool arguments of the constructor, masks that `forward` takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from attnscope.checks.decoder import triangles
from attnscope.checks.decoding import parameters_of
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL, is_lower, visible
from attnscope.checks.maps import Map
from attnscope.checks.padding import called_with
from attnscope.diagnostic import Tried

MASKS = frozenset({"AS201", "AS203", "AS204", "AS205", "AS206", "AS213"})
"""The codes that speak of what a mask lets through. Masks may leave out the diagonal on purpose."""

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


def handed(lab: Lab) -> Iterator[tuple[str, Lab]]:
    """The target with a causal mask, in the way that it proves to take one, for an argument that was left
    out."""
    ahead = {one.number for one in lab.all_maps if one.square and _looks_ahead(one)}
    if lab.size > _SIZE or lab.recording.error is not None or not ahead:
        return
    arguments = lab.exact.arguments
    known = parameters_of(lab.exact.module).items()
    free = [name for name, one in known if one.default is None and arguments.get(name) is None]
    for name in free[:_MOST]:
        for mask in triangles(lab.all_maps[min(ahead)].applied.shape[-1]):
            if lab.spent:
                return
            other = called_with(lab, {name: mask})
            shown = [one for one in other.all_maps if one.number in ahead]
            if other.recording.error is None and any(
                one.square and is_lower(visible(one) > SMALL) for one in shown
            ):
                yield f"{name}=a causal mask", other
                break


def _looks_ahead(one: Map) -> bool:
    return bool(np.triu(visible(one) > SMALL, 1).any())


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
