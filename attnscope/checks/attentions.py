"""The attentions of a target, each a subject of its own: its owner, what it was called with, its equals.

After one recorded run of the whole, the owner of an attention is the innermost module of the user's that
was handed a sequence. Everything here is read from the recorded data flow; no name decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnscope.axes.details import is_library
from attnscope.checks.lab import Lab
from attnscope.checks.leaks import SMALL, visible
from attnscope.checks.maps import Map
from attnscope.checks.sequences import kinds, same_tokens
from attnscope.checks.subject import Kind, Part, Sibling, Subject, names_of, parts
from attnscope.recorder.record import Recording
from attnscope.recorder.tensors import Ref
from attnscope.sandbox.copying import cloned, copied


@dataclass(frozen=True)
class Owned:
    """One call of a module that owns attention: its index, its maps, the paths of calls that did the same."""

    call: int
    maps: tuple[Map, ...]
    kind: Kind
    also: tuple[int, ...] = ()


def owned_by(lab: Lab) -> dict[int, list[Map]]:
    """The attentions of the recorded run by the call of their owner; call 0 is the target's own."""
    owners: dict[int, list[Map]] = {}
    for one in lab.all_maps:
        owners.setdefault(owner_of(lab, one), []).append(one)
    return owners


def owner_of(lab: Lab, one: Map) -> int:
    """The innermost call of a module of the user's, registered, that was handed the attention's sequence."""
    recording = lab.recording
    call = one.found.call
    while call > 0:
        module, parent, *_ = recording.calls[call]
        if not is_library(module) and id(module) in recording.paths and _is_handed_tokens(lab, call, one):
            return call
        call = parent
    return 0


def _is_handed_tokens(lab: Lab, call: int, one: Map) -> bool:
    """Whether a call gets the sequence, and not queries, keys and values that others cut or projected."""
    sequences = [ref for ref in arguments_of(lab.recording, call).values() if _is_sequence(lab, ref)]
    product = one.found.product
    if not sequences or product is None:
        return bool(sequences)
    queries = _inside(lab, sequences, product.left)
    keys = _inside(lab, sequences, product.right)
    if not queries and not keys:
        return False
    apart = queries and keys and not set(queries) & set(keys)
    return not (apart and same_tokens(lab, queries[0], keys[0]))


def _inside(lab: Lab, refs: Sequence[int], serial: int) -> list[int]:
    made_of = lab.lineage.ancestors(serial)
    return [ref for ref in refs if ref in made_of]


def arguments_of(recording: Recording, call: int) -> dict[str, int]:
    """The serials of a call's tensor arguments by name."""
    module, _, positional, named = recording.calls[call]
    names = names_of(module, len(positional))
    given = {name: int(ref) for name, ref in zip(names, positional, strict=True) if ref is not None}
    return given | {name: int(ref) for name, ref in named.items()}


def _is_sequence(lab: Lab, ref: int) -> bool:
    """[B, T, C], [T, C] or ids; heads are not cut yet. Where no name has come so far three axes say it."""
    shape, _, dtype, _ = lab.recording.made[ref]
    labels = [dim.label for dim in lab.steps.axes.of.get(ref, ())]
    tokens = [letter for letter in labels if letter in ("T", "S")]
    if not dtype.is_floating_point:
        return dtype is not torch.bool and len(shape) <= 2 and len(tokens) == 1
    if len(shape) not in (2, 3) or any(
        letter in ("H", "G") or "·" in (letter or "") for letter in labels[:-1]
    ):
        return False
    if len(tokens) > 1 or (labels and labels[-1] in ("T", "S")):
        return False
    return bool(tokens) or (len(shape) == 3 and ref in lab.lineage.active)


# -- siblings ----------------------------------------------------------------------------------------------


def siblings_of(lab: Lab, own: Sequence[Map], kind: Kind, known: Mapping[int, Kind]) -> tuple[Sibling, ...]:
    """The other attentions of one kind whose queries come from tokens that this one's come from, too."""
    mine = {one.number for one in own}
    tokens = _sources(lab, own[0])
    found = []
    for one in lab.all_maps:
        if one.number in mine or known[one.number] != kind or not tokens & _sources(lab, one):
            continue
        if one.applied is None:
            continue
        owner = lab.recording.path_of(owner_of(lab, one))
        found.append(Sibling(owner, visible(one) > SMALL, lab.span(one.event)))
    return tuple(found)


def _sources(lab: Lab, one: Map) -> set[int]:
    """The arguments of the target that an attention's queries are made of."""
    product = one.found.product
    given = {serial for _, serial in lab.recording.arguments}
    return lab.lineage.ancestors(product.left) & given if product is not None else given


# -- equal layers --------------------------------------------------------------------------------------------


def inside(recording: Recording, call: int) -> set[int]:
    """A call and all calls that it made."""
    found = {call}
    for index in range(call + 1, len(recording.calls)):
        if recording.calls[index][1] in found:
            found.add(index)
    return found


def signature(lab: Lab, call: int, maps: Sequence[Map]) -> tuple[Any, ...]:
    """What a call did: two with one signature are the same experiment, whatever their parameters hold."""
    recording = lab.recording
    numbers: dict[int, int] = {}
    read: list[Any] = []

    def number(ref: int) -> int:
        if ref not in numbers:
            numbers[ref] = len(numbers)
            leaf = recording.owned.get(recording.leaves.get(ref, -1), ("", ""))[0]
            if leaf in ("buffer", "attribute"):
                value = lab.lineage.leaf_value(ref)
                read.append((numbers[ref], None if value is None else hash(value.tobytes())))
        return numbers[ref]

    given = tuple((name, number(ref)) for name, ref in arguments_of(recording, call).items())
    calls = inside(recording, call)
    did = []
    for event in recording.events:
        if event.call in calls:
            refs = tuple(number(ref) for ref in lab.lineage.refs(event))
            scalars = repr([_scalar(value) for value in (*event.args, *sorted(event.kwargs.items()))])
            shapes = tuple(tuple(recording.made[out][0]) for out in event.outputs)
            did.append((event.op.name, event.code, event.lasti, scalars, refs, shapes))
            for out in event.outputs:
                number(out)
    masks = tuple(
        None if one.found.allowed is None else hash(np.ascontiguousarray(one.found.allowed).tobytes())
        for one in maps
    )
    classes = tuple(type(recording.calls[index][0]) for index in sorted(calls))
    return classes, given, tuple(did), tuple(read), masks


def _scalar(value: Any) -> Any:
    """What of an argument is no tensor."""
    if type(value) is Ref:
        return ""
    if type(value) in (tuple, list):
        return [_scalar(item) for item in value]
    return value


def distinct(lab: Lab, owners: Mapping[int, list[Map]]) -> list[Owned]:
    """Each owner but the target itself, equal ones once, in the order in which they ran."""
    known = kinds(lab)
    found: dict[Any, Owned] = {}
    for call in sorted(call for call in owners if call > 0):
        maps = tuple(owners[call])
        kind = _kind_of(maps, known)
        key = (signature(lab, call, maps), kind)
        if key in found:
            found[key] = replace(found[key], also=(*found[key].also, call))
        else:
            found[key] = Owned(call, maps, kind)
    return list(found.values())


def _kind_of(maps: Sequence[Map], known: Mapping[int, Kind]) -> Kind:
    """Of a block with several attentions: it is judged as the one over its own tokens where there is one."""
    seen = [known[one.number] for one in maps]
    return "self" if "self" in seen else "encoder" if "encoder" in seen else "cross"


# -- what they were called with ------------------------------------------------------------------------------


def caught(lab: Lab, wanted: Sequence[int]) -> dict[int, tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of calls of the recorded run, from one more run of the target in its own type."""
    recording, alive = lab.recording, lab.alive
    turns = {call: (recording.path_of(call), _turn(recording, call)) for call in wanted}
    made = copied(alive.module)
    module = alive.module if made is None else made  # a module may define what its truth is
    modules = dict(parts(module))
    seen: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
    handles = []

    def watch(path: str) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            memo: dict[int, Any] = {}
            seen.setdefault(path, []).append((cloned(args, memo), cloned(kwargs, memo)))

        return hook

    modes = [(part, part.training) for _, part in parts(module)]
    try:
        for path in {path for path, _ in turns.values()}:
            if path in modules:
                handles.append(modules[path].register_forward_pre_hook(watch(path), with_kwargs=True))
        lab.spend()
        alive.run(module=module, fresh=False)
    finally:
        for handle in handles:
            handle.remove()
        if made is None:  # functions that were handed over may call the copy: it stays as it ran
            for part, training in modes:
                part.training = training
    return {call: seen[path][turn] for call, (path, turn) in turns.items() if len(seen.get(path, ())) > turn}


def _turn(recording: Recording, call: int) -> int:
    """How many calls of the same module came before."""
    module = recording.calls[call][0]
    return sum(recording.calls[index][0] is module for index in range(call))


def part_subject(lab: Lab, one: Owned, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Subject:
    """The attention as a subject of its own, called as in the whole."""
    recording, whole = lab.recording, lab.alive
    args, kwargs = given
    refs = arguments_of(recording, one.call)
    module = dict(parts(whole.module))[recording.path_of(one.call)]
    names = names_of(module, len(args))
    queries = [m.found.product.left for m in one.maps if m.found.product is not None]
    sequences = {name: ref for name, ref in refs.items() if _is_sequence(lab, ref)}
    main = next(
        (name for serial in queries for name, ref in sequences.items() if _inside(lab, [ref], serial)),
        next(iter(sequences), None),
    )
    values = {**dict(zip(names, args, strict=True)), **kwargs}
    together = tuple(
        name
        for name, ref in sequences.items()
        if main is not None
        and (values[name].shape, values[name].dtype) == (values[main].shape, values[main].dtype)
        and same_tokens(lab, refs[main], ref)
    )
    axes = {
        name: _axes(lab, refs.get(name), value, name in together, name in sequences)
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
    serials = {serial: name for name, serial in recording.arguments}
    handed = _guessed_masks(lab)
    path = path_of(recording, one.call)
    within = inside(recording, one.call)
    order = [m.number for m in lab.all_maps if m.found.call in within]
    part = Part(
        path=path,
        also=tuple(path_of(recording, call) for call in one.also),
        kind=one.kind,
        tokens=main,
        together=together,
        owned=frozenset(order.index(m.number) for m in one.maps),
        numbers=tuple(order),
        siblings=siblings_of(lab, one.maps, one.kind, kinds(lab)),
        whole=lab,
    )
    return Subject(
        module, args, kwargs, names, axes,
        causal=whole.causal,
        guessed=frozenset(
            name
            for name, ref in refs.items()
            if serials.get(ref) in whole.guessed
            or (name not in sequences and handed & lab.lineage.ancestors(ref))
        ),
        dtype=whole.dtype,
        title=path,
        environment=whole.environment,
        part=part,
    )  # fmt: skip


def _guessed_masks(lab: Lab) -> set[int]:
    """The serials of arguments of the target that nobody gave and that hold no tokens."""
    given = [(name, serial) for name, serial in lab.recording.arguments if name in lab.subject.guessed]
    return {serial for _, serial in given if not _is_sequence(lab, serial)}


def path_of(recording: Recording, call: int) -> str:
    """The path of a call's module; with the turn where one module is called several times."""
    path, turn = recording.path_of(call), _turn(recording, call)
    return f"{path} (call {turn + 1})" if turn else path


def _axes(lab: Lab, ref: int | None, value: Tensor, mine: bool, sequence: bool) -> tuple[str | None, ...]:
    """The axes of an argument as they flowed; a sequence without names is taken to be [B, T, C]."""
    dims = lab.steps.axes.of.get(ref, ()) if ref is not None else ()
    labels: list[str | None] = [dim.label for dim in dims] if len(dims) == value.dim() else []
    labels = [letter if letter in ("B", "T", "S", "C") else None for letter in labels]
    labels = labels or [None] * value.dim()
    if not sequence:
        return tuple(None if letter == "C" else letter for letter in labels)
    token = next((i for i, letter in enumerate(labels) if letter in ("T", "S")), None)
    last = value.dim() - 1 if value.is_floating_point() else value.dim()
    if token is None:
        token = max(last - 1, 0)
    made: list[str | None] = [None] * value.dim()
    made[token] = "T" if mine else "S"
    for axis in range(value.dim()):
        if axis != token:
            made[axis] = "C" if axis == last else "B"
    return tuple(made)
