"""What would work where a step cannot be done: small changes, each tried before it is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

from attnscope.reshaping import moves
from attnscope.reshaping.moves import Impossible, NotKnown, Result
from attnscope.reshaping.strided import Strided

MOST_OFFERED = 3
Offer = tuple[str, Callable[[], Result]]


def cures(move: Callable[..., Result], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """Texts that can stand in the place of the step, the nearest first; none where nothing near works."""
    if not args or not isinstance(args[0], Strided):
        return ()
    found: list[str] = []
    for text, attempt in _offers(move, args[0], list(args[1:]), kwargs):
        try:
            attempt()
        except (Impossible, NotKnown, TypeError):
            continue
        if text not in found:
            found.append(text)
        if len(found) == MOST_OFFERED:
            break
    return tuple(found)


def _offers(
    move: Callable[..., Result], x: Strided, args: list[Any], kwargs: dict[str, Any]
) -> Iterator[Offer]:
    name = next((key for key, known in moves.METHODS.items() if known is move), "")
    if move in (moves.view, moves.reshape):
        yield from _sizes(name, x, _flat(args))
    elif move is moves.unflatten and args and "sizes" not in kwargs:
        yield from _unflattened(x, args)
    elif move is moves.permute:
        yield from _orders(x, _flat(args))
    elif move is moves.expand:
        yield from _expansions(x, _flat(args))
    elif move is moves.split:
        yield from _splits(x, args, kwargs)
    yield from _axes(move, name, x, args, kwargs)


def _sizes(name: str, x: Strided, sizes: list[Any]) -> Iterator[Offer]:
    if not sizes or not all(isinstance(size, int) for size in sizes):
        return
    if name == "view":
        yield f".reshape({_words(sizes)})", partial(moves.reshape, x, *sizes)
        yield f".contiguous().view({_words(sizes)})", partial(moves.view, moves.contiguous(x), *sizes)
    for place in range(len(sizes) - 1, -1, -1):
        others = prod(size for index, size in enumerate(sizes) if index != place)
        if others > 0 and x.size % others == 0:
            changed = [*sizes[:place], x.size // others, *sizes[place + 1 :]]
            yield f".{name}({_words(changed)})", partial(moves.METHODS[name], x, *changed)
    for place in range(len(sizes) + 1):
        others = prod(sizes)
        if others > 0 and x.size % others == 0:
            changed = [*sizes[:place], x.size // others, *sizes[place:]]
            yield f".{name}({_words(changed)})", partial(moves.METHODS[name], x, *changed)
    if x.shape:
        yield f".{name}({_words(x.shape)})", partial(moves.METHODS[name], x, *x.shape)


def _unflattened(x: Strided, args: list[Any]) -> Iterator[Offer]:
    axis, sizes = args[0], args[1] if len(args) > 1 else ()
    if not isinstance(sizes, tuple):
        return
    for place in range(len(sizes) - 1, -1, -1):
        changed = (*sizes[:place], -1, *sizes[place + 1 :])
        text = f".unflatten({axis}, {changed})"
        yield text, partial(moves.unflatten, x, axis, changed)


def _orders(x: Strided, order: list[Any]) -> Iterator[Offer]:
    """The order that was named, without axes that are not there, with those that are missing."""
    axes = len(x.shape)
    named: list[int] = []
    for axis in order:
        if isinstance(axis, int) and -axes <= axis < axes and axis % axes not in named:
            named.append(axis % axes)
    missing = [axis for axis in range(axes) if axis not in named]
    for changed in (missing + named, named + missing):
        yield f".permute({_words(changed)})", partial(moves.permute, x, *changed)


def _expansions(x: Strided, sizes: list[Any]) -> Iterator[Offer]:
    if not all(isinstance(size, int) for size in sizes):
        return
    for extra in range(len(sizes), -1, -1):  # new axes behind those that are there
        more = x
        for _ in range(extra):
            more = moves.unsqueeze(more, -1)
        text = ".unsqueeze(-1)" * extra + f".expand({_words(sizes)})"
        if extra:
            yield text, partial(moves.expand, more, *sizes)
    new = len(sizes) - len(x.shape)
    if new >= 0:
        kept = [
            size if place < new or size in (-1, x.shape[place - new]) or x.shape[place - new] == 1 else -1
            for place, size in enumerate(sizes)
        ]
        yield f".expand({_words(kept)})", partial(moves.expand, x, *kept)
    kept = [-1] * len(x.shape)
    yield f".expand({_words(kept)})", partial(moves.expand, x, *kept)


def _splits(x: Strided, args: list[Any], kwargs: dict[str, Any]) -> Iterator[Offer]:
    axis = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    sizes = args[0] if args else None
    if not isinstance(sizes, tuple) or not isinstance(axis, int) or not sizes:
        return
    end = f", {axis}" if axis else ""
    if -len(x.shape) <= axis < len(x.shape):
        size = x.shape[axis]
        rest = size - sum(sizes[:-1])
        changed = [*sizes[:-1], rest]
        yield f".split({changed}{end})", partial(moves.split, x, tuple(changed), axis)
        yield f".chunk({len(sizes)}{end})", partial(moves.chunk, x, len(sizes), axis)


def _axes(
    move: Callable[..., Result], name: str, x: Strided, args: list[Any], kwargs: dict[str, Any]
) -> Iterator[Offer]:
    """The same step along an axis that is there, the last one first."""
    if not name or any(not isinstance(value, int) for value in (*args, *kwargs.values())):
        return
    where = [("arg", index) for index in range(len(args) - 1, -1, -1)] + [("name", key) for key in kwargs]
    for _, place in where:
        for axis in range(-1, -len(x.shape) - 1, -1):
            changed, named = list(args), dict(kwargs)
            if isinstance(place, int):
                changed[place] = axis
            else:
                named[place] = axis
            parts = [*map(str, changed), *(f"{key}={value}" for key, value in named.items())]
            text = f".{name}({', '.join(parts)})"
            yield text, partial(move, x, *changed, **named)


def _flat(args: list[Any]) -> list[Any]:
    return list(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else args


def _words(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
