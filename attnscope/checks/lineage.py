"""Reading a recording backwards: what a tensor was made of, by which factors, and where a fault first
shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from attnscope.ops.catalog import FACTORS, FRESH, LENDING, MOVES, NORMS, PRODUCTS, SOURCES, plain
from attnscope.ops.einsum import read, spread
from attnscope.recorder.found import Found
from attnscope.recorder.record import Event, Recording
from attnscope.recorder.tensors import Ref, refs_in
from attnscope.schema import Span
from attnscope.source import span_of


@dataclass(frozen=True)
class Gain:
    """By how much a tensor was scaled since its anchor (the layer that made it).

    `factor` is None where it cannot be told (a norm, a learned or per-head scale in between); `parts` are the
    single factors with the event of each; `anchors` are the events that the way back ends at;
    `explicit` says that a number multiplies on the way, be it 1. `since` is the factor since the anchor, or
    since the last norm on the way.
    """

    factor: float | None
    parts: tuple[tuple[float, int], ...] = ()
    anchors: frozenset[int] = frozenset()
    learned: bool = False
    normed: bool = False
    explicit: bool = False
    since: float | None = 1.0


@dataclass
class Lineage:
    """Who made what in one recording (which was run with `values=True`); `angles` are arguments that hold
    cosines and sines."""

    recording: Recording
    angles: frozenset[int] = frozenset()
    _gains: dict[int, Gain] = field(default_factory=dict)
    _offspring: dict[int, set[int]] = field(default_factory=dict)

    @cached_property
    def producer(self) -> dict[int, int]:
        """The index of the event that made each serial."""
        return {out: i for i, event in enumerate(self.events) for out in event.outputs}

    @property
    def events(self) -> list[Event]:
        return self.recording.events

    @cached_property
    def users(self) -> dict[int, list[int]]:
        """The indices of the events that each serial went into."""
        users: dict[int, list[int]] = {}
        for index, event in enumerate(self.events):
            for ref in self.refs(event):
                users.setdefault(ref, []).append(index)
        return users

    @staticmethod
    def refs(event: Event) -> list[int]:
        """The serials that went into an event, in order; not those that lend their type or size alone."""
        if event.op.name in LENDING:
            return list(refs_in(event.args[:1]))
        return [*refs_in(event.args), *refs_in(tuple(event.kwargs.values()))]

    @cached_property
    def active(self) -> set[int]:
        """Serials that descend from an argument of the module."""
        return self._from_arguments(frozenset())

    @cached_property
    def carried(self) -> set[int]:
        """Serials that descend from an argument of the module that is more than a table of angles."""
        return self._from_arguments(self.angles) if self.angles else self.active

    def _from_arguments(self, without: frozenset[int]) -> set[int]:
        active = {serial for _, serial in self.recording.arguments} - without
        for event in self.events:
            if event.op.name in FRESH:
                continue
            if any(ref in active for ref in self.refs(event)) or event.op.name == "embedding":
                active.update(event.outputs)
        return active

    @cached_property
    def learned(self) -> set[int]:
        """Serials of parameters, and of what is made from parameters alone."""
        learned = set()
        for serial, leaf in self.recording.leaves.items():
            if self.recording.owned.get(leaf, ("", ""))[0] == "parameter":
                learned.add(serial)
        for event in self.events:
            refs = self.refs(event)
            if refs and any(r in learned for r in refs) and not any(r in self.active for r in refs):
                learned.update(event.outputs)
        return learned

    def ancestors(self, serial: int) -> set[int]:
        """Everything that a tensor was made of, itself included."""
        seen: set[int] = set()
        waiting = [serial]
        while waiting:
            current = waiting.pop()
            if current in seen:
                continue
            seen.add(current)
            made = self.producer.get(current)
            if made is not None:
                waiting += self.refs(self.events[made])
        return seen

    def value(self, serial: int) -> Any:
        """The recorded numbers of a tensor that an event made, or None."""
        made = self.producer.get(serial)
        if made is None:
            return None
        event = self.events[made]
        return event.values[event.outputs.index(serial)] if event.values is not None else None

    def shape(self, serial: int) -> tuple[int, ...]:
        return tuple(self.recording.made[serial][0])

    def span(self, index: int | None) -> Span | None:
        """Where an event stands in the user's source."""
        if index is None or not 0 <= index < len(self.events):
            return None
        event = self.events[index]
        if event.code is not None:
            return span_of(event.code, event.lasti)
        return None

    # -- scales -------------------------------------------------------------------------------------------

    def gain(self, serial: int) -> Gain:
        """The scalar by which a tensor differs from what its projection gave."""
        known = self._gains.get(serial)
        if known is None:
            self._gains[serial] = Gain(None, since=None)  # a cycle cannot be, but a guard costs nothing
            known = self._gains[serial] = self._gain(serial)
        return known

    def _gain(self, serial: int) -> Gain:
        index = self.producer.get(serial)
        if index is None:
            return Gain(1.0, anchors=frozenset({-1 - serial}))
        event = self.events[index]
        name = plain(event.op.name)
        if name in NORMS:
            return Gain(None, anchors=frozenset({index}), normed=True)
        if name in SOURCES:
            return Gain(1.0, anchors=frozenset({index}))
        refs = self.refs(event)
        active = [ref for ref in refs if ref in self.carried]
        if not active:
            return Gain(1.0, anchors=frozenset({index}))
        if name in MOVES:
            return self.gain(active[0])
        if name in FACTORS and len(active) == 1:
            scaled = self.scalar(event, active[0])
            if scaled is not None:
                before = self.gain(active[0])
                factor, learned = scaled
                if learned:
                    return replace(before, factor=None, learned=True)
                part = ((factor, index),) if not math.isclose(factor, 1.0) else ()
                return Gain(
                    _times(before.factor, factor), (*before.parts, *part), before.anchors, before.learned,
                    before.normed, True, _times(before.since, factor),
                )  # fmt: skip
        if name == "neg":
            return self.gain(active[0])
        return self._measured(serial, index, active)

    def _measured(self, serial: int, index: int, active: list[int]) -> Gain:
        """Something richer, a rotation for instance: the same size in as out is no scale."""
        start = self._gate(serial)
        if start is None:
            return Gain(None, anchors=frozenset({index}))
        before = self.gain(start)
        inside, outside = self.value(start), self.value(serial)
        if inside is None or outside is None:
            return replace(before, factor=None, since=None)
        ratio = _size(outside) / max(_size(inside), 1e-300)
        if abs(ratio - 1.0) > 5e-3:
            return replace(before, factor=None, normed=True, since=1.0)
        return before

    def _gate(self, serial: int) -> int | None:
        """The latest tensor that every way back to the input passes."""
        waiting = {self.producer[serial]}
        done: set[int] = set()
        serials = {serial}
        for _ in range(200):
            latest = max(waiting)
            waiting.discard(latest)
            event = self.events[latest]
            if latest in done:
                continue
            done.add(latest)
            serials -= set(event.outputs)
            name = plain(event.op.name)
            if name in SOURCES | NORMS:
                return None
            for ref in self.refs(event):
                if ref in self.carried:
                    serials.add(ref)
                    if ref not in self.producer:
                        return None
                    waiting.add(self.producer[ref])
            if len(serials) == 1:
                return next(iter(serials))
            if len({self.producer[s] for s in serials}) == 1:
                sources = {self.producer[s] for s in serials}
                one = self.events[next(iter(sources))]
                # Several parts of one split: what was split is the gate.
                if one.op.name in MOVES:
                    parents = [ref for ref in self.refs(one) if ref in self.carried]
                    return parents[0] if parents else None
        return None

    def scalar(self, event: Event, active: int) -> tuple[float, bool] | None:
        """The number by which a `mul` or `div` scales its active input, and whether it is learned."""
        name = plain(event.op.name)
        values = [*event.args, *event.kwargs.values()]
        others = [value for value in values if not (type(value) is Ref and int(value) == active)]
        if len(others) != 1:
            return None
        other = others[0]
        if type(other) is Ref:
            if math.prod(self.shape(int(other))) != 1:
                return None
            if int(other) in self.learned:
                return 1.0, True
            held = self.value(int(other))
            if held is None:
                held = self.leaf_value(int(other))
            if held is None or np.size(held) != 1:
                return None
            number = float(np.asarray(held).reshape(-1)[0])
        elif isinstance(other, int | float) and not isinstance(other, bool):
            number = float(other)
        else:
            return None
        if name == "div":
            if event.op.reflected:  # `1 / x` is no scale of x
                return None
            first = values[0]
            if not (type(first) is Ref and int(first) == active):
                return None
            number = 1.0 / number if number else math.inf
        return number, False

    def leaf_value(self, serial: int) -> Any:
        """The numbers of a parameter, buffer or attribute, found again by its identity."""
        wanted = self.recording.leaves.get(serial)
        if wanted is None:
            return None
        found = self._leaves.get(wanted)
        if found is None:
            return None
        value = found.detach()
        if value.is_meta or value.numel() > 1 << 22:
            return None
        return (value if value.is_complex() else value.float()).cpu().numpy()

    @cached_property
    def _leaves(self) -> dict[int, Tensor]:
        from attnscope.sandbox.guard import walk

        found: dict[int, Tensor] = {}
        for _, module in walk(self.recording.root):
            state = vars(module)
            for table in (state.get("_buffers") or {}, state.get("_parameters") or {}, state):
                for value in list(table.values()):
                    if isinstance(value, Tensor):
                        found[id(value)] = value
        return found

    def score_path(self, found: Found) -> list[int] | None:
        """The events between the product and the softmax, in order; None where there is more than one
        product."""
        if found.product is None:
            return None
        path: list[int] = []
        current = found.input_serial
        start = found.product.event
        for _ in range(len(self.events)):
            index = self.producer.get(current)
            if index is None:
                return None
            if index == start:
                return list(reversed(path))
            if index < start:
                return None
            path.append(index)
            event = self.events[index]
            refs = [ref for ref in self.refs(event) if self._from(ref, start)]
            if len(refs) > 1:  # `scores - scores.amax(-1)`: the way goes on with what has the whole shape
                refs = [ref for ref in refs if self.shape(ref) == self.shape(current)]
            if len(refs) != 1:
                return None
            current = refs[0]
        return None

    def weights_among(self, event: Event) -> set[int]:
        """Those inputs of an event that descend from a softmax."""
        made: set[int] = set()
        for _index, other in enumerate(self.events):
            if other is event:
                break
            if other.op.name == "softmax" or any(ref in made for ref in self.refs(other)):
                made.update(other.outputs)
        return made

    def _from(self, serial: int, start: int) -> bool:
        """Whether a tensor descends from the output of event `start`."""
        return serial in self.offspring(start)

    def offspring(self, start: int) -> set[int]:
        """Everything that descends from the output of event `start`, its output included."""
        if start not in self._offspring:
            made = set(self.events[start].outputs)
            for event in self.events[start + 1 :]:
                if any(ref in made for ref in self.refs(event)):
                    made.update(event.outputs)
            self._offspring[start] = made
        return self._offspring[start]

    def products_into(self, serial: int) -> list[int]:
        """Events of products of two activations that a softmax input descends from without passing a
        layer."""
        seen: set[int] = set()
        found: list[int] = []
        waiting = [serial]
        while waiting:
            index = self.producer.get(waiting.pop())
            if index is None or index in seen:
                continue
            seen.add(index)
            event = self.events[index]
            name = plain(event.op.name)
            active = [ref for ref in self.refs(event) if ref in self.active]
            if name in PRODUCTS and len(active) >= 2:
                found.append(index)
            elif name not in SOURCES and name not in NORMS:
                waiting += active
        return found


def contraction(event: Event, shapes: list[tuple[int, ...]]) -> int | None:
    """The size of the axis that a product sums over."""
    name = event.op.name
    equation = read(event.args[0]) if name == "einsum" and event.args else None
    if equation is not None and len(equation.inputs) == len(shapes) == 2:
        letters = zip(spread(equation.inputs[0], len(shapes[0])), shapes[0], strict=True)
        return math.prod(size for letter, size in letters if letter in equation.summed)
    return shapes[0][-1] if shapes and shapes[0] else None


def _times(before: float | None, factor: float) -> float | None:
    return None if before is None else before * factor


def _size(array: Any) -> float:
    values = np.asarray(array)
    values = np.abs(values).astype(np.float64)
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
