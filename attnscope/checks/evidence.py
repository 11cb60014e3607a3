"""What is meant, as data: what the user said, flags, triangles that are built, masks that were handed in.

Nothing here reads a docstring, a comment or what a class is called. The one table of names is that of flags
whose very name is the field's word for causal attention; of those only the value counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnscope.checks.decoder import decodes
from attnscope.checks.decoding import parameters_of
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import Leak, is_over_tokens, later_weight, leak_of
from attnscope.checks.maps import Map
from attnscope.checks.places import declared
from attnscope.checks.sequences import kinds
from attnscope.checks.severity import Kind
from attnscope.checks.subject import parts
from attnscope.ops.catalog import LIKES, SOURCES, TRIANGLES, plain
from attnscope.schema import Span

# The field's own words for it, exactly; a flag that is called otherwise is found by flipping it.
FLAGS = frozenset({"causal", "is_causal", "use_causal_mask", "autoregressive", "is_decoder"})
_SWITCHES = 4  # so many flags of one module are flipped
# Of these steps only the first tensor goes on: others are places in it.
_FIRST = frozenset("getitem index_select gather take".split())


@dataclass(frozen=True)
class Evidence:
    """One thing that shows what is meant: its `kind`, `where` it stands, how strong it is (the strongest is
    told), and a clause of words for it."""

    kind: Kind
    where: Span | None
    strength: int
    text: str


def evidence_of(lab: Lab) -> tuple[Evidence, ...]:
    """What shows whether causal attention is meant where the subject's leak is, the strongest first."""
    return lab.once(_sorted)


def _sorted(lab: Lab) -> tuple[Evidence, ...]:
    return tuple(sorted(_evidence(lab, leak_of(lab)), key=lambda one: -one.strength))


def _evidence(lab: Lab, leak: Leak) -> Iterator[Evidence]:
    if lab.subject.causal:
        yield Evidence("said", None, 9, "--causal asks for it")
    for argument, value in lab.subject.arguments.items():
        if isinstance(value, Tensor) and argument not in lab.subject.guessed and is_causal_triangle(value):
            yield Evidence("handed", None, 6, f"the argument `{argument}` holds a causal triangle")
    yield from _flags(lab, leak)
    yield from _triangles(lab, leak)
    yield from _buffers(lab, leak)
    yield from _beyond(lab)
    yield from _siblings(lab, leak)
    yield from _unread(lab)
    if decodes(lab):
        yield Evidence("decodes", None, 3, "it predicts the ids of its own sequence beside another one")


# -- flags ---------------------------------------------------------------------------------------------------


def _flags(lab: Lab, leak: Leak) -> Iterator[Evidence]:
    """The nearest flag: of the call, of the attention's own module, of what it stands in."""
    for name, value in _call_flags(lab).items():
        yield Evidence("flag" if value else "off", None, 8, f"`{name}` is {value} in this call")
        return
    for path, part in reversed([*_outside(lab), *_around(lab, leak)]):
        for name, value in list(vars(part).items()):
            if name in FLAGS and isinstance(value, bool):
                shown = f"{path}.{name}" if path else name
                kind: Kind = "flag" if value else "off"
                yield Evidence(kind, declared(part, name), 7, f"`{shown}` is {value}")
                return
    switch = _switch(lab, leak)
    if switch is not None:
        yield switch


def _call_flags(lab: Lab) -> dict[str, bool]:
    """Flags of the call: as given, or as `forward` sets them where nothing is given."""
    try:
        known = inspect.signature(lab.exact.module.forward).parameters
    except (TypeError, ValueError):
        known = {}  # type: ignore[assignment]
    values = {name: parameter.default for name, parameter in known.items()} | {
        name: value for name, value in lab.subject.arguments.items() if name not in lab.subject.guessed
    }
    return {name: value for name, value in values.items() if name in FLAGS and isinstance(value, bool)}


def _around(lab: Lab, leak: Leak) -> list[tuple[str, nn.Module]]:
    """The modules in which the leaking attention stands, the outermost first; the whole where there is
    none."""
    root = [("", lab.recording.root)]
    if leak.map is None:
        return root
    path = lab.recording.path_of(leak.map.found.call)
    return root + [(p, part) for p, part in parts(lab.recording.root) if p and f"{path}.".startswith(f"{p}.")]


def _switch(lab: Lab, leak: Leak) -> Evidence | None:
    """A flag of any name that is off and, once flipped, masks what is later: the mask is an option."""
    if leak.kind not in ("open", "dropped") or leak.map is None:
        return None
    number = leak.map.number
    try:
        known = inspect.signature(lab.exact.module.forward).parameters
    except (TypeError, ValueError):
        known = {}  # type: ignore[assignment]
    given = lab.exact.arguments
    for name in [n for n, p in known.items() if isinstance(given.get(n, p.default), bool)][:_SWITCHES]:
        value = bool(given.get(name, known[name].default))
        if _masks(lab, lab.record(lab.exact, {name: not value}), number):
            return Evidence("off", None, 8, f"`{name}` is {value} in this call: {not value} masks")
    for path, part in reversed(_around(lab, leak)):
        flags = [n for n, v in vars(part).items() if isinstance(v, bool) and n != "training"]
        for name in flags[:_SWITCHES]:
            value = vars(part)[name]
            vars(part)[name] = not value
            try:
                masks = _masks(lab, lab.record(replace(lab.exact, module=lab.recording.root)), number)
            finally:
                vars(part)[name] = value
            if masks:
                shown = f"{path}.{name}" if path else name
                return Evidence("off", declared(part, name), 7, f"`{shown}` is {value}: {not value} masks")
    return None


def _masks(lab: Lab, recording: Any, number: int) -> bool:
    """Whether in another recorded run the attention of that number gives no later key any weight."""
    from attnscope.checks.lineage import Lineage
    from attnscope.checks.maps import build_maps
    from attnscope.steps import Steps

    if recording.error is not None:
        return False
    maps = build_maps(Lineage(recording), Steps(recording))
    return number < len(maps) and is_over_tokens(maps[number], lab) and later_weight(maps[number], lab) == 0


# -- triangles -----------------------------------------------------------------------------------------------


def is_causal_triangle(value: Any) -> bool:
    """Whether a square array holds one value up to its diagonal and another beyond it, and no third."""
    array = _square(value)
    if array is None:
        return False
    n = array.shape[0]
    return any(_two_valued(array, np.tri(n, k=k, dtype=bool)) for k in (0, -1))


def _square(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.is_meta or value.dim() < 2 or value.is_complex():
            return None
        value = value.detach()
    shape: tuple[int, ...] = tuple(getattr(value, "shape", ()))
    if len(shape) < 2 or shape[-1] < 3 or shape[-1] != shape[-2] or not np.prod(shape):
        return None
    first = value.reshape(-1, *shape[-2:])[0][:64, :64]
    return first.to(torch.float64).cpu().numpy() if isinstance(first, Tensor) else first.astype(np.float64)


def _two_valued(array: Any, lower: Any) -> bool:
    below, above = array[lower], array[~lower]
    return bool((below == below[0]).all() and (above == above[0]).all() and below[0] != above[0])


def mask_ancestors(one: Map, lab: Lab, stop: Collection[str] = ()) -> set[int]:
    """What the masks of an attention were made of, by steps that keep it a mask: no embedding of places, no
    index into a table, no layer, and none of `stop`."""
    lineage, found = lab.lineage, one.found
    roots = [] if found.mask_serial is None else [found.mask_serial]
    scores: set[int] = set()
    if found.product is not None and found.source != "sdpa":
        scores = lineage.offspring(found.product.event)
        roots += found.product.mask_serials
        for index in lineage.score_path(found) or []:
            roots += lineage.refs(lineage.events[index])
    return mask_sources(lab, *(root for root in roots if root not in scores), stop=stop)


def mask_sources(lab: Lab, *roots: int, stop: Collection[str] = ()) -> set[int]:
    """What these were made of by steps that keep a mask a mask, and themselves."""
    lineage = lab.lineage
    waiting = list(roots)
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        made = lineage.producer.get(current)
        if made is None:
            continue
        event = lineage.events[made]
        name = plain(event.op.name)
        if name not in SOURCES | LIKES and name not in stop:
            refs = lineage.refs(event)
            waiting += refs[:1] if name in _FIRST else refs
    return seen


def _triangles(lab: Lab, leak: Leak) -> Iterator[Evidence]:
    """A causal triangle that a step builds, for this attention or for nothing."""
    lineage = lab.lineage
    if leak.map is None:
        for one in lab.maps:
            if is_over_tokens(one, lab) and later_weight(one, lab) == 0 and _is_masked(one):
                yield Evidence("triangle", lab.span(one.event), 5, "its attention is causal")
                return
        return
    mine = mask_ancestors(leak.map, lab)
    for index, event in enumerate(lineage.events):
        name = plain(event.op.name)
        degenerate = name in TRIANGLES and any(
            len(lineage.shape(out)) >= 2 and max(lineage.shape(out)[-2:]) < 2 for out in event.outputs
        )
        if not degenerate and not any(is_causal_triangle(lineage.value(out)) for out in event.outputs):
            continue
        if any(out in mine for out in event.outputs) or not _goes_on(lab, event.outputs):
            yield Evidence("triangle", lab.span(index), 5, f"`{event.op.name}` builds a causal triangle")
            return


def _is_masked(one: Map) -> bool:
    return one.found.is_causal or one.found.mask_serial is not None


def _goes_on(lab: Lab, serials: tuple[int, ...]) -> bool:
    """Whether anything of the result, or of an attention, descends from these."""
    reached = set(serials)
    for event in lab.lineage.events:
        if any(ref in reached for ref in lab.lineage.refs(event)):
            reached.update(event.outputs)
    ends = {one.found.serial for one in lab.maps} | {lab.recording.result_serial}
    return bool(reached & ends)


def _buffers(lab: Lab, leak: Leak) -> Iterator[Evidence]:
    """A buffer or plain tensor of the modules around the attention that holds a causal triangle, unless it
    serves another attention."""
    serials = {leaf: serial for serial, leaf in lab.recording.leaves.items()}
    mine = mask_ancestors(leak.map, lab) if leak.map is not None else set()
    for path, part in reversed(_around(lab, leak)):
        for table in (vars(part).get("_buffers") or {}, vars(part)):
            for name, value in list(table.items()):
                if not isinstance(value, Tensor) or isinstance(value, nn.Parameter):
                    continue
                serial = serials.get(id(value))
                elsewhere = serial is not None and serial not in mine and _goes_on(lab, (serial,))
                if is_causal_triangle(value) and not elsewhere:
                    shown = f"{path}.{name}" if path else name
                    text = f"`{shown}` holds a causal triangle"
                    yield Evidence("triangle", declared(part, name), 4, text)
                    return


def _beyond(lab: Lab) -> Iterator[Evidence]:
    """A causal triangle that the target around this part of it builds or holds, and that serves nothing."""
    part = lab.subject.part
    if part is None or part.whole is None:
        return
    whole = part.whole
    for index, event in enumerate(whole.lineage.events):
        made = any(is_causal_triangle(whole.lineage.value(out)) for out in event.outputs)
        if made and not _goes_on(whole, event.outputs):
            yield Evidence(
                "triangle", whole.lineage.span(index), 3, f"`{event.op.name}` builds a causal triangle"
            )
            return
    read = set(whole.recording.leaves.values())
    for path, module in _outside(lab):
        for name, value in list((vars(module).get("_buffers") or {}).items()):
            if isinstance(value, Tensor) and id(value) not in read and is_causal_triangle(value):
                shown = f"{path}.{name}" if path else name
                yield Evidence("triangle", declared(module, name), 2, f"`{shown}` holds a causal triangle")
                return


def _unread(lab: Lab) -> Iterator[Evidence]:
    """An argument that a target of two sequences cannot be called without, and that no step reads: the mask
    of those attentions that have none."""
    part = lab.subject.part
    whole: Lab = part.whole if part is not None and part.whole is not None else lab
    if "cross" not in kinds(whole).values():
        return
    asked = parameters_of(whole.exact.module)
    for name, serial in whole.recording.arguments:
        required = name in asked and asked[name].default is inspect.Parameter.empty
        if required and serial not in whole.lineage.users and serial != whole.recording.result_serial:
            yield Evidence("unread", None, 2, f"`forward` asks for `{name}`, and no step reads it")
            return


def _outside(lab: Lab) -> list[tuple[str, nn.Module]]:
    """The modules of the target around this part of it, the outermost first."""
    part = lab.subject.part
    if part is None or part.whole is None:
        return []
    inner = f"{part.path}."
    return [
        (path, one)
        for path, one in parts(part.whole.recording.root)
        if not path or (inner.startswith(f"{path}.") and inner != f"{path}.")
    ]


# -- other attentions ----------------------------------------------------------------------------------------


def _siblings(lab: Lab, leak: Leak) -> Iterator[Evidence]:
    """Other attentions over the same tokens that are causal by their masks."""
    part = lab.subject.part
    number = sum(one.causal for one in part.siblings) if part is not None else 0
    if leak.map is not None:
        own = _streams(leak.map, lab)
        number += sum(
            one is not leak.map
            and _is_masked(one)
            and is_over_tokens(one, lab)
            and later_weight(one, lab) == 0
            and _streams(one, lab) == own
            for one in lab.maps
        )
    if number:
        noun = "other attention" if number == 1 else "other attentions"
        yield Evidence(
            "siblings",
            None,
            5,
            f"{number} {noun} over the same tokens {'is' if number == 1 else 'are'} causal",
        )


def _streams(one: Map, lab: Lab) -> tuple[frozenset[str], frozenset[str]]:
    """The arguments that queries and keys descend from."""
    product = one.found.product
    if product is None:
        return frozenset(), frozenset()
    sides = [lab.lineage.ancestors(serial) for serial in (product.left, product.right)]
    first, second = (
        frozenset(name for name, serial in lab.recording.arguments if serial in side) for side in sides
    )
    return first, second
