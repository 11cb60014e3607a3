"""Decoding step by step: the same tokens in pieces, each call given what the one before kept.

Which argument takes a cache, and what of a result is one, is found by trying: a cache is what the next call
accepts and what changes its output.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.checks.lab import Lab
from attnscope.checks.subject import Subject, cloned, copied, first_tensor, quiet, seeded

_CACHE = re.compile(
    r"cache|^past|layer_past|_past$|^state$|^states$|^prev|incremental_state|^mems?$|^kv$", re.I
)
_NOT_CACHE = re.compile(r"position|use_|length|start", re.I)
_USE = re.compile(r"^(use|return|with|output)_(kv_)?(cache|past|present)s?$|^use_kv$|^cached?$", re.I)
_POSITIONS = re.compile(
    r"position_?ids?$|^positions?$|^pos$|input_pos|cache_position|token_positions|pos_ids", re.I
)
_START = re.compile(r"start_?pos|^offset$|past_len|^start$|start_idx|cur_pos|start_index|pos_offset", re.I)


@dataclass(frozen=True)
class Protocol:
    """How a module takes a cache: `name` its argument, `pick` which part of the result is the cache (None:
    the
    argument itself is filled), `flags` that are set, `start` and `positions` arguments that say where a piece
    begins."""

    name: str | None
    pick: str | int | None
    flags: Mapping[str, Any]
    start: str | None = None
    positions: str | None = None


@dataclass(frozen=True)
class Decoded:
    """`outputs` of all pieces joined along the tokens, the last call's `subject`, and where its piece
    began."""

    outputs: Tensor
    last: Subject
    begin: int
    protocol: Protocol


def parameters_of(module: nn.Module) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return {}


def protocols(lab: Lab) -> list[Protocol]:
    """Ways in which the module may take a cache, by the names of what `forward` takes."""
    found: list[Protocol] = []
    known = parameters_of(lab.exact.module)
    given = lab.exact.arguments
    caches = [n for n in known if _CACHE.search(n) and not _NOT_CACHE.search(n) and n not in lab.together]
    caches = [n for n in caches if given.get(n) is None or n in lab.subject.guessed]
    flags = {
        n: True for n, p in known.items() if (_USE.search(n) and not _CACHE.fullmatch(n)) or _USE.search(n)
    }
    flags = {n: v for n, v in flags.items() if n not in caches}
    start = next((n for n in known if _START.search(n)), None)
    positions = next((n for n in known if _POSITIONS.search(n)), None)
    for name in caches:
        for pick in ("auto", None):
            found.append(Protocol(name, pick, flags, start, None))
            if positions is not None:
                found.append(Protocol(name, pick, flags, start, positions))
    if not caches and start is not None and _holds_cache(lab.exact.module):
        found.append(Protocol(None, None, flags, start, None))
    if not caches and flags and _holds_cache(lab.exact.module):
        found.append(Protocol(None, None, flags, start, positions))
    return found


def _holds_cache(module: nn.Module) -> bool:
    return any(
        re.search(r"cache|past_k|past_v|k_past|prev_k", name) for part in module.modules() for name in
        [*vars(part), *(vars(part).get("_buffers") or {})]
    )  # fmt: skip


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
        if result is None:
            return None
        output = first_tensor(result)
        if output is None or output.dim() != base.dim() or output.shape[axis] != size:
            return None
        if number + 1 < len(pieces):
            if protocol.pick is None:
                if protocol.name is not None and not cache:
                    return None
            else:
                cache = _cache_of(result)
                if cache is None:
                    return None
        else:
            last = replace(last, **_with_cache(last, protocol, held))
        outputs.append(output)
        begin += size
    return Decoded(torch.cat(outputs, axis), last, begin - pieces[-1], protocol)


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


def _cache_of(result: Any) -> Any:
    """What of a result is handed to the next call: the part that is no first tensor."""
    if isinstance(result, Mapping):
        named = [v for k, v in result.items() if _CACHE.search(str(k)) or re.search("present", str(k))]
        return named[0] if named else None
    if isinstance(result, tuple | list) and not hasattr(result, "_fields"):
        rest = [item for item in result[1:] if item is not None]
        nested = [item for item in rest if not isinstance(item, Tensor)]
        if nested:
            return nested[-1]
        if len(rest) >= 2 and all(isinstance(item, Tensor) for item in rest):
            return tuple(rest)
        return rest[0] if len(rest) == 1 else None
    if hasattr(result, "__dict__") and not isinstance(result, Tensor | nn.Module):
        for name, value in vars(result).items():
            if (_CACHE.search(name) or "present" in name) and value is not None:
                return value
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        for name in result._fields:
            if _CACHE.search(name) or "present" in name:
                return getattr(result, name)
    return None
