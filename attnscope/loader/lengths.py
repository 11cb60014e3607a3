"""Other numbers of tokens, for a module that takes only one number of them, or multiples of one.

A window, a feature map, a learned table of positions that is added whole: T is our guess then, and the module
refuses it rightly. A mask that was not cut to T refuses it as well, and that is its fault.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from torch import nn

from attnscope.loader import candidates as cand
from attnscope.loader.candidates import Candidate, Frame
from attnscope.loader.probe import Outcome
from attnscope.loader.search import Search
from attnscope.loader.sizes import as_size

_LONGEST = 4096
_MOST = 24
_LIKELY = re.compile(r"window|resolution|fmap|grid|feat_size")


def of_length(frame: Frame, length: int) -> Frame:
    """`frame` with another T; a text is repeated."""
    tokens = tuple(islice(cycle(frame.tokens), length)) if frame.tokens else None
    return replace(frame, T=length, tokens=tokens)


def window_lengths(search: Search) -> list[int]:
    """T for modules that are made for one window or one feature map: 7 × 7 tokens."""
    sides = [_pair(value) for name, value in _numbers(search) if _LIKELY.search(name)]
    found = [side[0] * side[1] for side in sides if side is not None]
    return _fitting(search, found)[:3]


def fixed_length(search: Search, outcome: Outcome, layouts: list[Candidate]) -> Outcome:
    """A call with a number of tokens that the module's own numbers suggest, where one runs.

    `layouts` of the main input are those that got furthest. Where a mask refuses, only fewer tokens are
    tried: it may have room for no more, and one that was not cut stays the fault that it is.
    """
    if not search.free_length:
        return outcome
    lengths = [n for n in _suggested(search) if not outcome.masked or n < search.frame.T]
    kept = dict(search.choice), search.frame, dict(search.widths)
    needed = {n: c for n, c in kept[0].items() if search.by_name[n].required}  # more did not help
    for layout in layouts:
        for length in lengths[:_MOST]:
            if search.spent:
                break
            search.choice = {**needed, search.main: layout}
            search.frame, search.widths = of_length(kept[1], length), {}
            tried = search.try_choice(search.choice)
            if tried.ran:
                search.refused = kept[1].T, outcome.error
                return tried
    search.choice, search.frame, search.widths = kept
    return outcome


def _suggested(search: Search) -> list[int]:
    """n, n², 2n, and one more, for each number n that the module was made with or that its tables have."""
    numbers = [_pair(value) for _, value in _numbers(search)]
    areas = [pair[0] * pair[1] for pair in numbers if pair is not None]
    sizes = [pair[0] for pair in numbers if pair is not None]
    tables = list(_tables(search.module))
    plain = [*tables, *sizes]
    found = [*areas, *plain, *(2 * n for n in sizes), *(n + 1 for n in areas), *(n + 1 for n in sizes)]
    return _fitting(search, found)


def _fitting(search: Search, found: list[int]) -> list[int]:
    """Lengths that no other axis has: a coincidence must not let a fault pass."""
    frame, sizes = search.frame, search.built.sizes
    taken = {frame.B, frame.T, frame.S, frame.C, *frame.head_dims, *sizes.all()} - {sizes.context}
    least = frame.T if frame.tokens else 1  # a text that is too long is the user's own
    return [n for n in dict.fromkeys(found) if least < n <= _LONGEST and n not in taken]


def _numbers(search: Search) -> Iterator[tuple[str, Any]]:
    """What the module keeps and what it was constructed with: names and values."""
    for part in list(search.module.modules())[:30]:
        if not type(part).__module__.startswith("torch."):
            yield from vars(part).items()
    for name, value in search.built.arguments.items():
        fields = getattr(value, "__dict__", {})
        plain = not isinstance(value, nn.Module | type)
        yield from fields.items() if isinstance(fields, dict) and fields and plain else [(name, value)]


def _tables(module: nn.Module) -> Iterator[int]:
    """Axes of what the user's own classes register: a table of positions has one row for each token."""
    for part in list(module.modules())[:30]:
        if type(part).__module__.startswith("torch."):
            continue
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
            if 2 <= tensor.dim() <= 4 and math.prod(tensor.shape) > 1:
                yield from tensor.shape[:-1]


def _pair(value: Any) -> tuple[int, int] | None:
    if type(value) is tuple and len(value) == 2:
        first, second = as_size(value[0]), as_size(value[1])
        return (first, second) if first and second else None
    size = as_size(value)
    return (size, size) if size else None


def with_time(outcomes: list[tuple[Candidate, Outcome]]) -> list[Candidate]:
    """The two layouts with an axis of tokens that got furthest."""
    known = [(c, o) for c, o in outcomes if "T" in c.axes and not o.masked and c not in (cand.MAIN["nc"],)]
    return [c for c, _ in sorted(known, key=lambda pair: pair[1].progress, reverse=True)][:2]
