"""Patterns of einops, `rearrange("t (h d) -> h t d", h=2)` and `repeat`, as views and copies of torch.

einops cuts the groups of the left side, moves the axes, adds the new ones and joins the groups of the right
side; only a cut or a join that strides cannot express moves elements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any

from attnscope.reshaping.moves import Impossible, expand, listed, permute, reshape, unsqueeze, whole
from attnscope.reshaping.strided import Strided

Side = list[list[str]]
"""Groups of names; a group of one is an axis by itself, an empty one an axis of size 1."""

_TOKEN = re.compile(r"\s+|\.\.\.|[()]|[A-Za-z_][A-Za-z0-9_]*|\d+")


def rearrange(x: Strided, pattern: Any, **sizes: Any) -> Strided:
    return _apply(x, pattern, sizes, new_axes=False)


def repeat(x: Strided, pattern: Any, **sizes: Any) -> Strided:
    return _apply(x, pattern, sizes, new_axes=True)


def _apply(x: Strided, pattern: Any, sizes: Mapping[str, Any], new_axes: bool) -> Strided:
    if not isinstance(pattern, str) or pattern.count("->") != 1:
        raise Impossible('the pattern must be a text with one arrow, such as "t (h d) -> h t d"')
    known = {name: whole(size) for name, size in sizes.items()}
    left, right = (_side(part) for part in pattern.split("->"))
    left, right = _without_dots(x, left, right)
    if len(left) != len(x.shape):
        raise Impossible(f"the left side names {len(left)} axes, {listed(x.shape)} has {len(x.shape)}")
    names = [name for group in left for name in group]
    wanted = [name for group in right for name in group]
    _check(names, wanted, known, new_axes)
    for group, size in zip(left, x.shape, strict=True):
        known.update(_solved(group, size, known))
    made = reshape(x, [known[name] for name in names]) if _grouped(left) else x
    made = permute(made, *[names.index(name) for name in wanted if name in names]) if names else made
    for place, name in enumerate(wanted):
        if name not in names:
            made = unsqueeze(made, place)
            made = expand(made, *[known[name] if at == place else -1 for at in range(len(made.shape))])
    return (
        reshape(made, [prod(known[name] for name in group) for group in right]) if _grouped(right) else made
    )


def _grouped(side: Side) -> bool:
    """Whether some group is more, or less, than one axis: else einops leaves strides as they are."""
    return any(len(group) != 1 for group in side)


def _side(text: str) -> Side:
    groups: Side = []
    inside = False
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise Impossible(f"`{text[place]}` has no meaning in a pattern")
        word, place = found[0], found.end()
        if word.isspace():
            continue
        if word in "()":
            if (word == "(") == inside:
                raise Impossible("brackets do not match, and one stands not in another")
            inside = word == "("
            if inside:
                groups.append([])
        elif word.isdigit():
            if word != "1":
                raise Impossible(f"only the size 1 can stand in a pattern, not {word}: name the axis")
            if not inside:
                groups.append([])
        elif inside:
            groups[-1].append(word)
        else:
            groups.append([word])
    if inside:
        raise Impossible("a bracket is not closed")
    return groups


def _without_dots(x: Strided, left: Side, right: Side) -> tuple[Side, Side]:
    """`...` written out as the axes that it stands for."""
    dots = sum(group == ["..."] for group in left)
    if dots > 1 or any("..." in group and len(group) > 1 for group in left):
        raise Impossible("`...` can stand once on the left, outside of brackets")
    if not dots:
        if any("..." in group for group in right):
            raise Impossible("`...` stands on the right alone")
        return left, right
    more = len(x.shape) - (len(left) - 1)
    if more < 0:
        raise Impossible(f"the left side names {len(left) - 1} axes, {listed(x.shape)} has {len(x.shape)}")
    hidden = [f"…{number}" for number in range(more)]
    opened: Side = []
    for group in left:
        opened += [[name] for name in hidden] if group == ["..."] else [group]
    closed: Side = []
    for group in right:
        if group == ["..."]:
            closed += [[name] for name in hidden]
        else:
            closed.append([part for name in group for part in (hidden if name == "..." else [name])])
    return opened, closed


def _check(names: list[str], wanted: list[str], known: Mapping[str, int], new_axes: bool) -> None:
    for side in (names, wanted):
        twice = next((name for name in side if side.count(name) > 1), None)
        if twice is not None:
            raise Impossible(f"`{twice}` stands twice on one side")
    lost = next((name for name in names if name not in wanted), None)
    if lost is not None:
        raise Impossible(f"`{lost}` stands on the left alone")
    new = [name for name in wanted if name not in names]
    if new and not new_axes:
        raise Impossible(f"`{new[0]}` stands on the right alone: `repeat` makes new axes")
    unsized = next((name for name in new if name not in known), None)
    if unsized is not None:
        raise Impossible(f"the size of the new axis `{unsized}` is not given")
    stray = next((name for name in known if name not in (*names, *wanted)), None)
    if stray is not None:
        raise Impossible(f"`{stray}` stands nowhere in the pattern")
    wrong = next((name for name, size in known.items() if size < 1), None)
    if wrong is not None:
        raise Impossible(f"{wrong}={known[wrong]} is no size")


def _solved(group: list[str], size: int, known: Mapping[str, int]) -> dict[str, int]:
    """The sizes of a group's names, of which one may be unknown."""
    given = prod(known[name] for name in group if name in known)
    free = [name for name in group if name not in known]
    text = " ".join(group)
    if len(free) > 1:
        raise Impossible(f"sizes of `{free[0]}` and `{free[1]}` are both unknown in ({text})")
    if free:
        if size % given:
            raise Impossible(f"({text}) has size {size}, which {given} does not divide")
        return {free[0]: size // given}
    if given != size:
        raise Impossible(f"({text}) has size {size}, the sizes given make {given}")
    return {}
