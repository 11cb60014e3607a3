"""Decoding step by step: the same tokens in pieces, each call given what the one before kept.

Which argument takes a cache, which part of a result is one, which flag asks for it and which number says
where a piece begins is found by trying, not by what they are called: a cache is what the next call accepts,
what changes its output, and what grows with the tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.checks.lab import Lab
from attnscope.checks.subject import Subject
from attnscope.sandbox.copying import cloned, copied
from attnscope.sandbox.state import quiet, seeded
from attnscope.sandbox.tensors import first_tensor

_MOST = 6  # so many arguments, flags and parts of a result are tried


@dataclass(frozen=True)
class Protocol:
    """How a module takes a cache: `name` its argument (None: it keeps one itself), `pick` which of the
    result's parts is the cache (None: the argument itself is filled), `flags` that are set, `start` and
    `positions` arguments that say where a piece begins."""

    name: str | None
    pick: int | None
    flags: Mapping[str, Any]
    start: str | None = None
    positions: str | None = None


@dataclass(frozen=True)
class Decoded:
    """`outputs` of all pieces joined along the tokens, the last call's `subject`, where its piece began, and
    how many numbers the cache held after each call."""

    outputs: Tensor
    last: Subject
    begin: int
    protocol: Protocol
    held: tuple[int, ...] = ()


def parameters_of(module: nn.Module) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return {}


def protocols(lab: Lab) -> Iterator[Protocol]:
    """Ways in which the module proves to take a cache."""
    given, guessed = lab.exact.arguments, lab.subject.guessed
    known = {
        name: parameter
        for name, parameter in parameters_of(lab.exact.module).items()
        if name not in lab.together
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    values = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    numbers = [name for name, value in values.items() if type(value) is int][:2]
    free = [n for n, v in values.items() if v is None or (n in guessed and type(v) not in (int, bool))][
        :_MOST
    ]
    for flags in _flags(lab, known, values):
        found = list(_named(lab, free, flags, numbers))
        if not found and (numbers or flags):
            inside = [Protocol(None, None, flags, start) for start in (*numbers, None)]
            inside += [Protocol(None, None, flags, None, name) for name in free]
            found = [one for one in inside if _proved(lab, one)]
        yield from found


def _named(lab: Lab, free: list[str], flags: Mapping[str, Any], numbers: list[str]) -> Iterator[Protocol]:
    first = _first_result(lab, flags)
    parts = range(len(parts_of(first))) if first is not None else ()
    for name in free:
        for pick in (*parts, None):
            places: list[tuple[str | None, str | None]] = [(start, None) for start in (None, *numbers)]
            places += [(None, other) for other in free if other != name]
            tried = [Protocol(name, pick, flags, *place) for place in places]
            if lab.spent or not any(_proved(lab, one) for one in tried[: 1 + len(numbers)]):
                continue
            yield from tried
            return


def _flags(
    lab: Lab, known: Mapping[str, inspect.Parameter], values: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Sets of flags that may ask for a cache: none, each, all; those alone that change no output."""
    yield {}
    off = [
        name for name, value in values.items()
        if value is False or (value is None and "bool" in str(known[name].annotation))
    ][:_MOST]  # fmt: skip
    base = lab.base.output
    quiet_ones = []
    for name in off:
        output = lab.run({name: True}).output
        if output is None or base is None or output.shape != base.shape:
            continue
        if float(lab.difference(output, ()).max()) <= lab.tolerance:
            quiet_ones.append(name)
            yield {name: True}
    if len(quiet_ones) > 1:
        yield dict.fromkeys(quiet_ones, True)


def _first_result(lab: Lab, flags: Mapping[str, Any]) -> Any:
    module = copied(lab.exact.module)
    values = _piece(lab, 0, 2, Protocol(None, None, flags))
    if module is None or values is None:
        return None
    return _call(replace(lab.exact.with_arguments({**values, **flags}), module=module), module)


def _proved(lab: Lab, protocol: Protocol) -> bool:
    """Whether two calls show a cache: without what was kept the second gives something else, and what is
    kept, or what is attended to, grows with the tokens."""
    made = decode(lab, protocol, [2, 1])
    if made is None:
        return False
    with_it = made.outputs.narrow(lab.output_axes(lab.base.output)[1] or 0, 2, 1)  # type: ignore[arg-type]
    fresh = copied(lab.exact.module)
    alone = replace(made.last, module=fresh if fresh is not None else made.last.module)
    if protocol.name is not None:
        alone = alone.with_arguments({protocol.name: {} if protocol.pick is None else None})
    other = alone.run().output
    same = other is not None and other.shape == with_it.shape
    if same and float((other - with_it).abs().max()) <= 1e-9 * lab.scale:  # type: ignore[operator]
        return False
    if len(made.held) > 1 and made.held[-1] > made.held[0]:
        return True
    recording = lab.record(made.last)
    found = recording.capture.found if recording.capture is not None else []
    return any(one.shape and one.shape[-1] > 1 for one in found)


def decode(lab: Lab, protocol: Protocol, pieces: Sequence[int]) -> Decoded | None:
    """Run the tokens in pieces; None where the module does not take them so."""
    module = copied(lab.exact.module)
    token = lab.input_axes[1]
    base = lab.base.output
    if module is None or token is None or base is None:
        return None
    axis = lab.output_axes(base)[1]
    if axis is None:
        return None
    outputs: list[Tensor] = []
    cache: Any = {} if protocol.name is not None and protocol.pick is None else None
    begin = 0
    last = lab.exact
    sizes = []
    for number, size in enumerate(pieces):
        values = _piece(lab, begin, size, protocol)
        if values is None:
            return None
        if protocol.name is not None and (number or protocol.pick is None):
            values[protocol.name] = cache
        values |= dict(protocol.flags)
        last = replace(lab.exact.with_arguments(values), module=module)
        held = cloned(cache) if isinstance(cache, dict | list | tuple) else cache
        result = _call(last, module)
        output = first_tensor(result) if result is not None else None
        if output is None or output.dim() != base.dim() or output.shape[axis] != size:
            return None
        if protocol.pick is not None:
            parts = parts_of(result)
            cache = parts[protocol.pick] if protocol.pick < len(parts) else None
        if protocol.name is not None and not _size(cache) and number + 1 < len(pieces):
            return None
        sizes.append(_size(cache))
        if number + 1 == len(pieces):
            last = replace(last, **_with_cache(last, protocol, held))
        outputs.append(output)
        begin += size
    return Decoded(torch.cat(outputs, axis), last, begin - pieces[-1], protocol, tuple(sizes))


def _with_cache(last: Subject, protocol: Protocol, cache: Any) -> dict[str, Any]:
    if protocol.name is None:
        return {}
    made = last.with_arguments({protocol.name: cache})
    return {"args": made.args, "kwargs": made.kwargs}


def _call(subject: Subject, module: nn.Module) -> Any:
    with quiet(subject.environment), seeded(0), torch.no_grad():
        try:
            module.eval()
            return module(*subject.args, **subject.kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None


def _piece(lab: Lab, begin: int, size: int, protocol: Protocol) -> dict[str, Any] | None:
    """The arguments of one piece: what has tokens is cut to it, a mask to its queries and the keys so far."""
    values: dict[str, Any] = {}
    for name, value in lab.exact.arguments.items():
        if not isinstance(value, Tensor):
            if isinstance(value, tuple | list) and any(isinstance(v, Tensor) for v in value):
                if name == protocol.name:
                    continue
                cut = [_cut(v, lab.length, begin, size) for v in value]
                if any(v is None for v in cut):
                    return None
                values[name] = type(value)(cut)
            continue
        axes = lab.exact.axes.get(name, ())
        new = value
        if "T" in axes:
            new = new.narrow(axes.index("T"), begin, size)
        if "S" in axes and value.shape[axes.index("S")] == lab.length:
            new = new.narrow(axes.index("S"), 0, begin + size)
        if "T" not in axes and "S" not in axes and lab.length in value.shape:
            got = _cut(value, lab.length, begin, size)
            if got is None:
                return None
            new = got
        values[name] = new.clone()
    if protocol.start is not None:
        values[protocol.start] = begin
    if protocol.positions is not None:
        given = lab.exact.arguments.get(protocol.positions)
        if not isinstance(given, Tensor):
            values[protocol.positions] = torch.arange(begin, begin + size)[None]
    return values


def _cut(value: Any, length: int, begin: int, size: int) -> Any:
    """A table with one row for each token, cut to a piece; None where it is not clear which axis that is."""
    if not isinstance(value, Tensor):
        return value
    fits = [i for i, n in enumerate(value.shape) if n == length]
    return value.narrow(fits[0], begin, size) if len(fits) == 1 else None


def parts_of(result: Any) -> list[Any]:
    """What of a result may be handed to the next call, the likeliest first: what is nested, several tensors
    as one, single ones; never the output itself."""
    if isinstance(result, Mapping):
        items = list(result.values())
    elif isinstance(result, tuple | list):
        items = list(result)
    elif hasattr(result, "__dict__") and not isinstance(result, Tensor | nn.Module):
        items = list(vars(result).values())
    else:
        return []
    output = first_tensor(result)
    rest = [item for item in items if item is not output and _size(item)]
    single = [item for item in rest if isinstance(item, Tensor)]
    nested = [item for item in rest if not isinstance(item, Tensor)]
    return [*reversed(nested), *([tuple(single)] if len(single) > 1 else []), *single][:_MOST]


def _size(value: Any, depth: int = 0) -> int:
    """How many numbers there are in a cache of whatever form."""
    if isinstance(value, Tensor):
        return value.numel()
    if depth > 4 or value is None or isinstance(value, str | bytes | int | float | nn.Module):
        return 0
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    state = getattr(value, "__dict__", None)
    return sum(_size(item, depth + 1) for item in (*items, *(state.values() if type(state) is dict else ())))
