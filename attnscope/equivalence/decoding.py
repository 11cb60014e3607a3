"""Decoding with a cache, step by step, in both modules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from attnscope.comparison import ComparedRun
from attnscope.equivalence.calls import Calls, Result
from attnscope.equivalence.experiments import Outcome, compared
from attnscope.equivalence.lab import Lab

_USES = re.compile(r"use_(kv_)?cache|incremental|^decode$|use_past")
_CACHED = re.compile(r"cache|past|state|mem")


def decoding(lab: Lab) -> Iterator[Outcome]:
    """Token by token, and a prompt followed by single tokens, with each module's own cache."""
    ways = [_way(calls) for calls in lab.sides]
    if any(ways) and not all(ways):
        side = "A" if ways[0] else "B"
        yield Outcome(ComparedRun("decoding", f"only {side} takes a cache", None))
    if not all(ways) or lab.length < 3:
        return
    for name, cuts in (
        ("decoding token by token", [1] * lab.length),
        ("a prompt, then single tokens", [3] + [1] * (lab.length - 3)),
    ):
        outcome = _decoded(name, lab, cuts)
        if outcome.run.held is not None:
            yield outcome


def _way(calls: Calls) -> bool:
    """Whether the forward takes a cache, or keeps one itself when it is told to."""
    return any(p.role == "cache" or _USES.search(p.name.lower()) for p in calls.parameters)


def _decoded(name: str, lab: Lab, cuts: list[int]) -> Outcome:
    modules = lab.modules()
    caches: list[Any] = [None, None]
    start = 0
    outcome = Outcome(ComparedRun(name, "no step", None))
    largest = 0.0
    for length in cuts:
        results: list[Result] = []
        sent = []
        for side, (calls, module) in enumerate(zip(lab.sides, modules, strict=True)):
            args, kwargs = _step(lab, calls, start, length, caches[side])
            sent.append((args, kwargs))
            results.append(calls.run(module, args, kwargs, seed=1))
        here = compared(f"{name}, position {start}", lab, results[0], results[1])
        here.calls = (sent[0], sent[1])
        if here.run.held is not True:
            if here.differs:
                here.say = here.say or f"{name}: {here.run.result} in the call at position {start}"
            return here
        largest = max(largest, here.run.largest or 0.0)
        for side, (calls, result) in enumerate(zip(lab.sides, results, strict=True)):
            caches[side] = _cache_of(calls, result)
        outcome = here
        start += length
    run = ComparedRun(
        name, f"equal, largest difference {largest:.1e}" if largest else "equal", True, largest, lab.tolerance
    )
    return Outcome(run, calls=outcome.calls)


def _step(lab: Lab, calls: Calls, start: int, length: int, cache: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for the tokens from `start` on, with what is in the cache."""
    args, kwargs = calls.at(lab.batch, length, lab.dtype, start)
    names = calls.inputs.names
    for p in calls.parameters:
        value: Any
        if p.role == "cache" and not isinstance(p.default, bool):
            value = cache
        elif _USES.search(p.name.lower()):
            value = True
        elif p.role == "start":
            value = start
        else:
            continue
        if p.name in names:
            args[names.index(p.name)] = value
        else:
            kwargs[p.name] = value
    return args, kwargs


def _cache_of(calls: Calls, result: Result) -> Any:
    """What the module returned for the next call: the last thing beside its output."""
    returned = result.returned
    if isinstance(returned, tuple | list) and len(returned) > 1:
        return returned[-1] if len(returned) == 2 else _last_cache(returned)
    if isinstance(returned, dict):
        return next((v for k, v in returned.items() if _CACHED.search(str(k))), None)
    return None


def _last_cache(returned: Any) -> Any:
    holders = [item for item in returned[1:] if isinstance(item, tuple | list | dict)]
    return holders[-1] if holders else returned[-1]
