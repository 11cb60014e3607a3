"""Which number of A belongs where in B: by `--map`, by equal names and shapes, by known layouts.

A plan holds for each number of B's parameters the address in A that fills it. So the same plan moves values
from A to B and gradients from B back to A, and a layout can never do more than rearrange.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnscope.comparison import Left, Moved, Neutral
from attnscope.equivalence import layouts
from attnscope.equivalence.layouts import Reading
from attnscope.equivalence.mapping import mapped
from attnscope.equivalence.parameters import Param, Table

_NONE, _ZERO, _ONE = -1, -2, -3


@dataclass
class Plan:
    """`source` [numbers of B]: an address in A, or that B keeps its own (-1), gets 0 (-2) or 1 (-3).

    `fixed` [numbers of A]: -1, or the 0 and 1 of an identity that A is given because B has no such part.
    `used` says how each parameter of B was found: `same name`, `--map`, `by role`, `by shape`.
    """

    a: Table
    b: Table
    source: Tensor
    fixed: Tensor
    used: dict[str, str] = field(default_factory=dict)
    neutral: list[Neutral] = field(default_factory=list)
    why: dict[tuple[str, str], str] = field(default_factory=dict)
    layout: str = ""

    def values(self, vector: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """The values of A and of B, from those of A and B's own."""
        first = vector.clone()
        first[self.fixed == _ZERO] = 0.0
        first[self.fixed == _ONE] = 1.0
        second = own.clone()
        moved = self.source >= 0
        second[moved] = first[self.source[moved]]
        second[self.source == _ZERO] = 0.0
        second[self.source == _ONE] = 1.0
        return first, second

    def pulled(self, gradient: Tensor) -> Tensor:
        """B's gradient as A's: summed where a number of A went to several places."""
        back = torch.zeros(self.a.size, dtype=gradient.dtype)
        moved = self.source >= 0
        return back.scatter_add(0, self.source[moved], gradient[moved])

    @property
    def compared(self) -> Tensor:
        """Which numbers of A have a place in B: only their gradients can be compared."""
        mask = torch.zeros(self.a.size, dtype=torch.bool)
        mask[self.source[self.source >= 0]] = True
        return mask & (self.fixed == _NONE)

    @property
    def key(self) -> bytes:
        return self.source.numpy().tobytes() + self.fixed.numpy().tobytes()

    def moved(self) -> tuple[Moved, ...]:
        return tuple(_describe(self, p) for p in self.b.params if bool((self.source[p.flat] >= 0).any()))

    def left(self) -> tuple[Left, ...]:
        """What has no partner on the other side."""
        reached = torch.zeros(self.a.size, dtype=torch.bool)
        reached[self.source[self.source >= 0]] = True
        reached |= self.fixed != _NONE
        found = []
        for side, table, done in (("A", self.a, reached), ("B", self.b, self.source != _NONE)):
            for p in table.params:
                part = done[p.flat]
                if not bool(part.all()):
                    default = "no partner" if not bool(part.any()) else "only a part has a partner"
                    found.append(Left(side, p.name, p.shape, self.why.get((side, p.name), default)))
        return tuple(found)


def plans(
    a: Table, b: Table, maps: Sequence[str], heads: tuple[int | None, int | None], groups: int | None
) -> Iterator[Plan]:
    """The plans worth trying, the usual first. With equal names and shapes throughout there is one.

    Raises UsageError for a `--map` that cannot be done.
    """
    base = _start(a, b, maps)
    left_a, left_b = _same_names(base)
    if not left_a and not left_b:
        yield base
        return
    yield from _by_roles(base, left_a, left_b, heads, groups, rotary=False)


def explanations(
    a: Table, b: Table, maps: Sequence[str], heads: tuple[int | None, int | None], groups: int | None
) -> Iterator[Plan]:
    """Other known layouts of the same weights, for saying what a difference comes from."""
    base = _start(a, b, maps)
    taken = (
        [p for p in a.params if base_free(base, p)],
        [p for p in b.params if bool((base.source[p.flat] < 0).all())],
    )
    yield from _by_roles(base, *taken, heads, groups, rotary=True)


def base_free(plan: Plan, p: Param) -> bool:
    """Whether nothing of A's parameter was moved yet."""
    if not p.value.numel():
        return True
    first = int(p.flat.reshape(-1)[0])
    return not bool(((plan.source >= first) & (plan.source < first + p.value.numel())).any())


def _start(a: Table, b: Table, maps: Sequence[str]) -> Plan:
    plan = Plan(a, b, torch.full((b.size,), _NONE), torch.full((a.size,), _NONE))
    for text in maps:
        source, target = mapped(text, a, b)
        plan.source[target.reshape(-1)] = source.reshape(-1)
        if target.numel():
            plan.used[b.holding(target)[0].name] = "--map"
    return plan


def _same_names(plan: Plan) -> tuple[list[Param], list[Param]]:
    """Move what has the same name, shape and orientation; what is left of both."""
    names = {p.name: p for p in plan.a.params}
    done: set[str] = set()
    left_b = []
    for p in plan.b.params:
        if p.name in plan.used:
            continue
        tied = p.name in plan.a.tied
        twin = names.get(plan.a.tied.get(p.name, p.name))
        fits = twin is not None and twin.shape == p.shape and _turns(twin, p)
        if twin is not None and fits and (tied or base_free(plan, twin)):
            plan.source[p.flat.reshape(-1)] = twin.flat.reshape(-1)
            plan.used[p.name] = "same name"
            done.add(p.name)
        else:
            left_b.append(p)
    left_a = [p for p in plan.a.params if p.name not in done and base_free(plan, p)]
    return left_a, left_b


def _turns(a: Param, b: Param) -> bool:
    return a.turned == b.turned or a.value.dim() != 2


def _by_roles(
    base: Plan,
    left_a: Sequence[Param],
    left_b: Sequence[Param],
    heads: tuple[int | None, int | None],
    groups: int | None,
    *,
    rotary: bool,
) -> Iterator[Plan]:
    ways_a, ways_b = layouts.readings(left_a, heads[0]), layouts.readings(left_b, heads[1])
    pairs = [(x, y) for y in ways_b for x in ways_a]
    pairs.sort(key=lambda pair: pair[0] != pair[1])
    if rotary:
        pairs += [(x, ways_b[0]) for x in layouts.rotary(ways_a[:1])]
    seen: set[bytes] = set()
    fused = tuple(any(p.role in ("qkv", "kv") for p in side) for side in (left_a, left_b))
    several = len(pairs) > 1
    for way_a, way_b in pairs:
        plan = Plan(base.a, base.b, base.source.clone(), base.fixed.clone(), dict(base.used))
        rest_a, rest_b = _roles(plan, left_a, left_b, (way_a, way_b), heads, groups)
        _others(plan, rest_a, rest_b)
        if several:
            plan.layout = layouts.describe(way_a, way_b, *fused)
        if plan.key not in seen:
            seen.add(plan.key)
            yield plan


def _roles(
    plan: Plan,
    left_a: Sequence[Param],
    left_b: Sequence[Param],
    ways: tuple[Reading, Reading],
    heads: tuple[int | None, int | None],
    groups: int | None,
) -> tuple[list[Param], list[Param]]:
    """Move q, k, v and output projections of each attention; what is left over of both."""
    sides = [_attentions(table.params, left) for table, left in ((plan.a, left_a), (plan.b, left_b))]
    if len(sides[0]) != len(sides[1]):
        return list(left_a), list(left_b)
    for group_a, group_b in zip(*sides, strict=True):
        width = _width(group_a) or _width(group_b)
        one = layouts.canonical(group_a, ways[0], heads[0] or _count(group_a), width)
        two = layouts.canonical(group_b, ways[1], heads[1] or _count(group_b), width)
        for key in dict.fromkeys([*one, *two]):
            _move(plan, key, one.get(key), two.get(key), groups)
    attended = {id(p) for side in sides for group in side for p in group}
    return [p for p in left_a if id(p) not in attended], [p for p in left_b if id(p) not in attended]


def _move(plan: Plan, key: str, one: Tensor | None, two: Tensor | None, groups: int | None) -> None:
    role, part = key.split(".")
    if one is not None and two is not None:
        rows = layouts.join_heads(one, two, groups) if role in ("k", "v") else one
        if rows is not None and rows.shape == two.shape:
            plan.source[two.reshape(-1)] = rows.reshape(-1)
            for name in _names(plan.b, two):
                plan.used[name] = "by role"
            return
        text = f"{list(one.shape)} does not fit {list(two.shape)}"
        plan.why.update({("A", name): text for name in _names(plan.a, one)})
        plan.why.update({("B", name): text for name in _names(plan.b, two)})
        return
    side, table, flat = ("A", plan.a, one) if one is not None else ("B", plan.b, two)
    assert flat is not None
    fill = plan.fixed if side == "A" else plan.source
    if part == "bias":
        fill[flat.reshape(-1)] = _ZERO
        value = "0"
    elif role == "o" and flat.dim() == 2 and flat.shape[0] == flat.shape[1]:
        fill[flat.reshape(-1)] = _ZERO
        fill[flat.diagonal()] = _ONE
        value = "the identity"
    else:
        return
    for name in _names(table, flat):
        shape = table[name].shape
        if all((n.side, n.name) != (side, name) for n in plan.neutral):
            plan.neutral.append(Neutral(side, name, value, shape))


def _names(table: Table, flat: Tensor) -> list[str]:
    """The names of the parameters that addresses lie in."""
    return [p.name for p in table.holding(flat)]


def _attentions(params: Sequence[Param], left: Sequence[Param]) -> list[list[Param]]:
    """Of each attention in order, what is left to move. An attention projects queries, keys or values."""
    kept = {id(p) for p in left}
    prefixes = dict.fromkeys(p.prefix for p in params if p.role in ("q", "k", "v", "qkv", "kv"))
    return [
        [p for p in params if p.prefix == prefix and p.role != "other" and id(p) in kept]
        for prefix in prefixes
    ]


def _width(group: Sequence[Param]) -> int:
    """C, from a projection whose orientation is known, else from the shorter side of a fused one."""
    for p in group:
        if p.role in ("q", "k", "v", "qkv", "kv") and p.part == "weight" and p.value.dim() == 2:
            if p.turned is None:
                return min(p.shape) if p.role in ("qkv", "kv") else p.shape[0]
            return p.shape[0] if p.turned else p.shape[1]
    for p in group:
        if p.role in ("q", "k", "v") and p.value.dim() == 3:
            return max(p.shape[1:])
    return 0


def _count(group: Sequence[Param]) -> int | None:
    numbers = [p.head for p in group if p.head is not None]
    return max(numbers) + 1 if numbers else None


def _others(plan: Plan, left_a: Sequence[Param], left_b: Sequence[Param]) -> None:
    """Pair what has no role in attention: by the end of its name, then by shape and order."""
    free = list(left_a)
    for tail in (2, 1):
        for p in left_b:
            if p.name in plan.used:
                continue
            key = _tail(p, tail)
            match = next(
                (x for x in free if x.shape == p.shape and _turns(x, p) and _tail(x, tail) == key), None
            )
            if match is not None:
                _pair(plan, match, p, "by name")
                free.remove(match)
    rest = [p for p in left_b if p.name not in plan.used]
    for shape in dict.fromkeys(p.shape for p in rest):
        ones = [p for p in free if p.shape == shape]
        twos = [p for p in rest if p.shape == shape]
        if len(ones) == len(twos):
            for one, two in zip(ones, twos, strict=True):
                if _turns(one, two):
                    _pair(plan, one, two, "by shape and order")
    for p in rest:  # a weight that one keeps as [in, out] and the other as [out, in]
        twin = next(
            (x for x in free if x.name == p.name and x.shape == p.shape[::-1] and x.value.dim() == 2), None
        )
        if twin is not None and p.name not in plan.used:
            plan.source[p.flat.reshape(-1)] = twin.flat.T.reshape(-1)
            plan.used[p.name] = "same name"


def _pair(plan: Plan, a: Param, b: Param, how: str) -> None:
    plan.source[b.flat.reshape(-1)] = a.flat.reshape(-1)
    plan.used[b.name] = how


def _tail(p: Param, length: int) -> str:
    return ".".join(p.name.split(".")[-length:])


def _describe(plan: Plan, b: Param) -> Moved:
    """One parameter of B in words: where it came from, and how it was rearranged."""
    flat = plan.source[b.flat]
    sources = plan.a.holding(flat)
    how = plan.used.get(b.name, "by role")
    if len(sources) == 1:
        a = sources[0]
        how = _same_or(how, flat, a)
    elif all(p.head is not None for p in sources):
        how = f"{len({p.head for p in sources})} heads joined"
    else:
        how = (
            "joined"
            if bool((torch.diff(flat.reshape(-1)) == 1).float().mean() > 0.9)
            else "joined, rearranged"
        )
    return Moved(b.name, tuple(p.name for p in sources), how, b.shape)


def _same_or(how: str, flat: Tensor, a: Param) -> str:
    if flat.shape == a.flat.shape and bool((flat == a.flat).all()):
        return how
    if flat.dim() == a.flat.dim() == 2 and flat.shape == a.shape[::-1] and bool((flat == a.flat.T).all()):
        return "transposed"
    rows = a.flat.shape[0] if a.flat.dim() else 1
    for turned, table in ((False, a.flat), (True, a.flat.T if a.flat.dim() == 2 else a.flat)):
        start = (
            int((flat.reshape(-1)[0] == table.reshape(table.shape[0], -1)[:, 0]).int().argmax())
            if rows
            else 0
        )
        part = table[start : start + flat.shape[0]] if flat.dim() else table
        if part.shape == flat.shape and bool((part == flat).all()):
            what = (
                f"rows {start} to {start + flat.shape[0] - 1}"
                if flat.dim() > 1
                else f"{start} to {start + flat.shape[0] - 1}"
            )
            return f"{what}, transposed" if turned and flat.dim() == 2 else what
    return "rearranged"
