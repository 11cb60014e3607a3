"""The end of a search: arguments, names of their axes, and what was guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from attnscope.loader import candidates as cand
from attnscope.loader.blame import doubt, said
from attnscope.loader.call import CallInputs
from attnscope.loader.expressions import printable
from attnscope.loader.probe import Outcome
from attnscope.loader.search import MASKS, SAME, Search


def result(search: Search, values: Mapping[str, Any], outcome: Outcome, causal: bool | None) -> CallInputs:
    cast: dict[int, Any] = {id(v): search.cast(v) for v in values.values()}
    values = {n: cast[id(v)] for n, v in values.items()}
    main = values.get(search.main)
    args, kwargs, names = search.call(values)
    axes = {n: _axes(search, n, v) for n, v in values.items() if isinstance(v, Tensor)}
    layout = search.layout_name(main)
    mask = next(
        (c.convention for n, c in search.choice.items() if c.convention and n not in search.given), ""
    )
    return CallInputs(
        tuple(args),
        kwargs,
        tuple(names),
        axes,
        layout,
        search.frame.B,
        search.frame.T,
        _say(search, values),
        outcome.error,
        doubt(search, outcome) if search.thorough else "",
        causal,
        mask,
        outcome.steps,
        frozenset(n for n in search.choice if n not in search.given),
    )


def _axes(search: Search, name: str, value: Tensor) -> tuple[str | None, ...]:
    candidate = search.choice.get(name)
    if name not in search.given and candidate is not None and candidate is not SAME:
        return candidate.axes if len(candidate.axes) == value.dim() else (None,) * value.dim()
    if candidate is SAME:
        return _axes(search, search.main, value)
    role = search.by_name[name].role if name in search.by_name else "other"
    if role in ("main", "tokens", "query", "key", "value", "memory") or name == search.main:
        layout = search.given_layout(value)
        if layout == "tbc" and value.dim() == 3:
            named: tuple[str | None, ...] = ("T", "B", "C")
        elif layout == "ids":
            named = ("B", "T") if value.dim() == 2 else ("T",)
        elif value.dim() == 2:
            named = ("T", "C")
        else:
            named = ("B", "T", "C")
        if role in ("memory", "key", "value") and "T" in named:
            index = named.index("T")
            if value.shape[index] != search.frame.T:
                named = (*named[:index], "S", *named[index + 1 :])
        return named if len(named) == value.dim() else (None,) * value.dim()
    if role in MASKS and value.dim() >= 2:
        return _mask_axes(search, value)
    return (None,) * value.dim()


def _mask_axes(search: Search, value: Tensor) -> tuple[str | None, ...]:
    """Axes of a mask that the user gave, as far as its sizes tell them."""
    names: list[str | None] = [None] * value.dim()
    if value.shape[-1] == search.keys():
        names[-1] = "S"
    if value.shape[-2] == search.frame.T and search.frame.T not in (1, search.frame.B):
        names[-2] = "T"
    if names[0] is None and value.shape[0] == search.frame.B and search.frame.B > 1:
        names[0] = "B"
    return tuple(names)


def _say(search: Search, values: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for name, candidate in search.choice.items():
        if name in search.given:
            continue
        value = values.get(name)
        if candidate is SAME:
            parts.append(
                f"{name}={search.main}" if value is values.get(search.main) else f"{name} like {search.main}"
            )
        elif isinstance(value, Tensor) and candidate.axes and not candidate.convention:
            shape = ", ".join(
                f"{a} {n}" if a else str(n) for a, n in zip(candidate.axes, value.shape, strict=False)
            )
            ids = " token ids" if not value.is_floating_point() and _is_ids(search, name) else ""
            parts.append(f"{name}=[{shape}]{ids}")
        else:
            parts.append(
                f"{name}: {candidate.label}" if candidate.convention else f"{name}={candidate.label}"
            )
    if search.refused is not None:
        parts.append(f"for with {search.refused[0]} tokens it raises {said(search.refused[1])}")
    return printable(", ".join(parts), 400)


def _is_ids(search: Search, name: str) -> bool:
    return search.choice[name] in cand.IDS
