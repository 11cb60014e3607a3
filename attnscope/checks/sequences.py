"""One sequence or two: whether queries and keys are made of the same tokens, and who looks at whom."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from attnscope.checks.lab import Lab
from attnscope.checks.lineage import Lineage
from attnscope.checks.maps import Map
from attnscope.checks.subject import Kind, Part
from attnscope.ops.catalog import FRESH, FUSED, PRODUCTS, plain


def same_tokens(lab: Lab, left: int, right: int) -> bool:
    """Whether two tensors are made of the same tokens, and no attention lies on the way of one alone."""
    lineage = lab.lineage
    one, two = lineage.ancestors(left), lineage.ancestors(right)
    if not one & two & lineage.active:
        return False
    return not any(_joins(lineage, serial) for serial in one ^ two)


def _joins(lineage: Lineage, serial: int) -> bool:
    """Whether a tensor was made by a product of two activations: tokens may have met there."""
    made = lineage.producer.get(serial)
    if made is None:
        return False
    event = lineage.events[made]
    name = plain(event.op.name)
    active = [ref for ref in lineage.refs(event) if ref in lineage.active]
    return name in FUSED or (name in PRODUCTS and len(active) > 1)


def _gives(lineage: Lineage, one: Map) -> tuple[int, ...]:
    """What descends from an attention first: its weights or, of one inside PyTorch's own function, the result
    of that, which is recorded as made of what the function was given."""
    if one.found.source == "mha":
        for event in lineage.events[one.event :]:
            if event.op.name in FUSED and event.op.name != lineage.events[one.event].op.name:
                return event.outputs
    return lineage.events[one.event].outputs


def tokens_of(lab: Lab, serial: int) -> frozenset[str]:
    """The arguments whose tokens a tensor has, one for one: what was attended to has the queries' tokens."""
    return lab.once(_Tokens).of(lab, serial)


def beside(lab: Lab, name: str, names: frozenset[str]) -> bool:
    """Whether these arguments are that one, and at most what is given beside its tokens, one for one:
    segments, places."""
    arguments, axes = lab.exact.arguments, lab.exact.axes
    sizes, order = arguments[name].shape[:2], axes[name][:2]
    return name in names and all(
        arguments[other].shape[:2] == sizes and axes.get(other, ())[:2] == order for other in names
    )


class _Tokens:
    """The arguments whose tokens tensors have, each worked out once."""

    def __init__(self, lab: Lab) -> None:
        self.names = {serial: name for name, serial in lab.recording.arguments}
        self.asking: dict[int, int] = {}
        for one in lab.all_maps:
            for event in {one.event, one.found.used_by} - {None}:
                if one.found.product is not None:
                    self.asking[int(event or 0)] = one.found.product.left

    def of(self, lab: Lab, serial: int) -> frozenset[str]:
        lineage = lab.lineage
        seen: set[int] = set()
        waiting = [serial]
        while waiting:
            current = waiting.pop()
            made = lineage.producer.get(current)
            if current in seen or made is None:
                seen.add(current)
                continue
            seen.add(current)
            event = lineage.events[made]
            name = plain(event.op.name)
            if made in self.asking:
                waiting.append(self.asking[made])
            elif name == "multi_head_attention_forward":
                waiting += lineage.refs(event)[:1]
            elif name not in FRESH:
                waiting += lineage.refs(event)
        return frozenset(self.names[one] for one in seen if one in self.names)


def kinds(lab: Lab) -> dict[int, Kind]:
    """By the number of each attention: over its own tokens, over a second sequence, or of the encoder."""
    found: dict[int, Kind] = {}
    crossing = []
    for one in lab.all_maps:
        product = one.found.product
        found[one.number] = "self"
        if product is not None and not same_tokens(lab, product.left, product.right):
            found[one.number] = "cross"
            if product.left in lab.lineage.active:
                crossing.append((lab.lineage.ancestors(product.left), lab.lineage.ancestors(product.right)))
    for one in lab.all_maps:
        made = _gives(lab.lineage, one)
        looked_at = any(
            any(out in keys for out in made) and not any(out in queries for out in made)
            for queries, keys in crossing
        )
        if found[one.number] == "self" and looked_at:
            found[one.number] = "encoder"
    return found


def asking(lab: Lab) -> str | None:
    """The argument whose tokens ask in attention over a second sequence; None where it is not one alone."""
    sequences = [name for name in lab.once(_looking)[1] if _layout_of(lab, name) is not None]
    return sequences[0] if len(sequences) == 1 else None


def tell_apart(lab: Lab) -> None:
    """Let a target whose attention looks from one sequence at another be asked for the one that looks.

    Where both come from the same argument, what its output may see of that is not for a triangle to say.
    """
    name = asking(lab)
    crossing, names = lab.once(_looking)
    if name is not None and lab.together != (name,):
        look_from(lab, name)
    elif crossing and not names:
        part = Part("", kind="cross", tokens=lab.main, together=lab.together)
        lab.subject = replace(lab.subject, part=part)


def _looking(lab: Lab) -> tuple[bool, frozenset[str]]:
    """Whether activations look at another sequence, and the arguments that they alone come from."""
    names = {serial: name for name, serial in lab.recording.arguments}
    found: set[str] = set()
    crossing = False
    for one in lab.all_maps:
        product = one.found.product
        if product is None or same_tokens(lab, product.left, product.right):
            continue
        queries, keys = lab.lineage.ancestors(product.left), lab.lineage.ancestors(product.right)
        crossing |= product.left in lab.lineage.active and product.right in lab.lineage.active
        found |= {names[serial] for serial in queries - keys if serial in names}
    return crossing, frozenset(found)


def _layout_of(lab: Lab, name: str) -> tuple[str | None, ...] | None:
    """The axes of an argument that may hold tokens, named as the main one's are; None for any other."""
    value, known = lab.exact.arguments.get(name), lab.exact.axes.get(name, ())
    if "T" in known or "S" in known:
        return None if {"T", "S"} <= set(known) else tuple("T" if a == "S" else a for a in known)
    if not isinstance(value, Tensor) or lab.main is None or value.dtype is torch.bool:
        return None
    kept = [a for a in lab.exact.axes[lab.main] if a in ("B", "T")]
    axes = (*kept, "C") if value.is_floating_point() else tuple(kept)
    return axes if len(axes) == value.dim() else None


def look_from(lab: Lab, name: str) -> None:
    """The tokens of one argument are those that outputs answer to; what was taken for them is a second
    sequence."""
    axes = dict(lab.exact.axes)
    for other in (lab.main, *lab.together):
        if other is not None:
            axes[other] = tuple("S" if a == "T" else a for a in axes[other])
    axes[name] = _layout_of(lab, name) or axes[name]
    part = Part("", tokens=name, together=(name,))
    alive = replace(lab.alive, axes=axes, part=part)
    exact = replace(lab.exact, axes=axes, part=part), lab.precise
    for place in ("main", "input_axes", "batch", "length", "together", "influence", "crossing", "empty"):
        lab.__dict__.pop(place, None)
    lab.subject = replace(lab.subject, axes=axes, part=part)
    lab.__dict__ |= {"alive": alive, "exact": exact[0], "_exact": exact}
