"""Dimensions as identities: what an axis *is*, apart from its size.

Two axes of one size are never confused, because each carries its `Dim` with it. A `Dim` may be a product
(`C` = `H` · `D`), a multiple (`3C`) or a fraction (`D/2`) of others, and may learn its name late: every
axis that shares it learns it too.
"""

from __future__ import annotations

from collections.abc import Sequence

Dims = tuple["Dim", ...]


class Dim:
    """One dimension. `mixed` marks an axis that holds a re-cut of others: it must never get their names."""

    __slots__ = ("_same", "factors", "merged", "mixed", "name", "part", "size", "times")

    def __init__(self, size: int, name: str | None = None, *, mixed: bool = False) -> None:
        self.size = size
        self.name = name
        self.mixed = mixed
        self.merged = False
        self.factors: Dims | None = None
        self.times: tuple[int, Dim] | None = None
        self.part: tuple[Dim, int] | None = None
        self._same: Dim | None = None

    def root(self) -> Dim:
        """The dimension that this one turned out to be."""
        current = self
        while current._same is not None:
            current = current._same
        return current

    def become(self, other: Dim) -> None:
        """This dimension turned out to be `other` (of the same size)."""
        mine, theirs = self.root(), other.root()
        if mine is not theirs and mine.size == theirs.size and not mine.mixed:
            mine._same = theirs

    @property
    def label(self) -> str | None:
        """The name to print: `T`, `3C`, `D/2`, `H·D`, or None where nothing decided."""
        return self._label(0)

    def _label(self, depth: int) -> str | None:
        dim = self.root()
        if dim.name is not None or depth > 4:
            return dim.name
        if dim.times is not None:
            base = dim.times[1]._label(depth + 1)
            return f"{dim.times[0]}{base}" if base is not None and base.isalnum() else None
        if dim.part is not None:
            base = dim.part[0]._label(depth + 1)
            return f"{base}/{dim.part[1]}" if base is not None and base.isalnum() else None
        if dim.factors is not None:
            labels = [factor._label(depth + 1) for factor in dim.factors]
            if all(labels):
                return "·".join(str(label) for label in labels)
        return None

    @property
    def known(self) -> bool:
        """Whether there is a name to print."""
        return self.label is not None

    def __repr__(self) -> str:
        return f"Dim({self.label or '?'} {self.size})"


class Space:
    """The dimensions of one recording, each named one once."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, int], Dim] = {}
        self._multiples: dict[tuple[int, int], Dim] = {}
        self._parts: dict[tuple[int, int], Dim] = {}
        self._products: dict[tuple[int, ...], Dim] = {}

    def named(self, name: str, size: int) -> Dim:
        """The dimension of that name and size."""
        known = self._named.get((name, size))
        if known is None:
            known = self._named[(name, size)] = Dim(size, name)
        return known

    def find(self, name: str, size: int | None = None) -> Dim | None:
        """A dimension of that name that is already known (of that size, if one is given)."""
        for (known, extent), dim in self._named.items():
            if known == name and size in (None, extent):
                return dim
        return None

    def multiple(self, count: int, base: Dim) -> Dim:
        """`count` times `base`: the fused axis of a 3C projection."""
        base = base.root()
        if count == 1:
            return base
        known = self._multiples.get((count, id(base)))
        if known is None:
            known = self._multiples[(count, id(base))] = Dim(count * base.size)
            known.times = (count, base)
        return known

    def part(self, base: Dim, count: int) -> Dim:
        """One of `count` equal parts of `base`."""
        base = base.root()
        if base.times is not None and base.times[0] % count == 0:
            return self.multiple(base.times[0] // count, base.times[1])
        known = self._parts.get((id(base), count))
        if known is None:
            known = self._parts[(id(base), count)] = Dim(base.size // count)
            known.part = (base, count)
        return known

    def product(self, factors: Sequence[Dim]) -> Dim | None:
        """The dimension that is known to be the product of these, in this order."""
        return self._products.get(tuple(id(factor.root()) for factor in factors))

    def is_product(self, whole: Dim, factors: Sequence[Dim]) -> None:
        """`whole` was split into (or merged from) `factors`, in this order."""
        whole = whole.root()
        if whole.factors is None:
            whole.factors = tuple(factor.root() for factor in factors)
        self._products.setdefault(tuple(id(factor.root()) for factor in factors), whole)

    def composite(self, factors: Sequence[Dim]) -> Dim:
        """The product of these: the known one, or a new one that was merged from them."""
        known = self.product(factors)
        if known is None:
            size = 1
            for factor in factors:
                size *= factor.size
            known = Dim(size)
            known.merged = True
            self.is_product(known, factors)
        return known


def join_singles(
    space: Space, groups: list[tuple[range, range]], before: Dims, after: Dims
) -> list[tuple[range, range]]:
    """Groups of a reshape in which an axis of size 1 that is a factor of its neighbour stands with it."""
    joined: list[tuple[range, range]] = []
    for left, right in groups:
        if joined:
            both = (range(joined[-1][0].start, left.stop), range(joined[-1][1].start, right.stop))
            old, new = [before[i] for i in both[0]], [after[j] for j in both[1]]
            split = len(old) == 1 and len(new) == 2 and space.product(new) is not None
            if split or (len(old) == 2 and len(new) == 1 and space.product(old) is not None):
                joined[-1] = both
                continue
        joined.append((left, right))
    return joined


def labels(dims: Sequence[Dim]) -> tuple[str | None, ...]:
    """The names of a tensor's axes."""
    return tuple(dim.label for dim in dims)


def regroup(before: Sequence[int], after: Sequence[int]) -> list[tuple[range, range]] | None:
    """Match the axes of a reshape: the finest list of groups whose sizes have equal products.

    Axes of size 1 are matched with each other where they meet, else stand alone. None for empty tensors.
    """
    if 0 in before or 0 in after:
        return None
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        start_i, start_j = i, j
        left = before[i] if i < len(before) else None
        right = after[j] if j < len(after) else None
        if left == 1 and right != 1:
            i += 1
        elif right == 1 and left != 1:
            j += 1
        elif left is None or right is None:
            return None
        else:
            i, j = i + 1, j + 1
            while left != right:
                if left < right:
                    if i >= len(before):
                        return None
                    left *= before[i]
                    i += 1
                else:
                    if j >= len(after):
                        return None
                    right *= after[j]
                    j += 1
        groups.append((range(start_i, i), range(start_j, j)))
    return groups


def total(dims: Sequence[Dim]) -> int:
    size = 1
    for dim in dims:
        size *= dim.size
    return size


def atoms(dim: Dim) -> list[Dim]:
    root = dim.root()
    if root.factors is None:
        return [root]
    return [atom for factor in root.factors for atom in atoms(factor)]
