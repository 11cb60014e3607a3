"""Cutting and joining axes: what a view does to names, with the help of what the source says of its sizes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from attnscope.axes.dims import Dim, Dims, atoms, regroup, total
from attnscope.axes.said import Said, is_one, is_rest
from attnscope.axes.state import Axes
from attnscope.recorder.record import Event


def reshape(axes: Axes, event: Event, before: Dims, sizes: Sequence[int], exprs: list[Said]) -> Dims:
    """The dimensions of a view with the given sizes."""
    groups = regroup([dim.size for dim in before], sizes)
    if groups is None:
        return tuple(Dim(size) for size in sizes)
    result: list[Dim] = []
    for left, right in _with_single(axes, event, groups, before, exprs):
        part = [before[i] for i in left]
        result += group(axes, event, part, [sizes[j] for j in right], [exprs[j] for j in right])
    return tuple(result)


def _with_single(
    axes: Axes,
    event: Event,
    groups: list[tuple[range, range]],
    before: Dims,
    exprs: list[Said],
) -> list[tuple[range, range]]:
    """One head, one channel, one entry: an axis of size 1 may be a factor of the axis beside it."""
    joined: list[tuple[range, range]] = []
    for group in _singles(axes, event, groups, before, exprs):
        if joined and _belong(axes, event, joined[-1], group, before, exprs):
            left, right = joined[-1]
            joined[-1] = range(left.start, group[0].stop), range(right.start, group[1].stop)
        else:
            joined.append(group)
    return joined


def _singles(
    axes: Axes,
    event: Event,
    groups: list[tuple[range, range]],
    before: Dims,
    exprs: list[Said],
) -> list[tuple[range, range]]:
    """Match axes of size 1 by what the source says where their number changes."""
    result: list[tuple[range, range]] = []
    run: list[tuple[range, range]] = []
    for group in [*groups, None]:
        if group is not None and all(before[i].size == 1 for i in group[0]) and len(group[0]) < 2:
            run.append(group)
            continue
        if run:
            result += _match(axes, event, run, before, exprs)
            run = []
        if group is not None:
            result.append(group)
    return result


def _match(
    axes: Axes, event: Event, run: list[tuple[range, range]], before: Dims, exprs: list[Said]
) -> list[tuple[range, range]]:
    left = range(run[0][0].start, run[-1][0].stop)
    right = range(run[0][1].start, run[-1][1].stop)
    if len(left) == len(right) or not left or not right:
        return run
    said = [j for j in right if not is_one(exprs[j])]
    matched: list[tuple[range, range]] = []
    place = left.start
    for j in right:
        letters = axes.letters(event, exprs[j])
        if len(left) == len(said) == 1:
            count = int(j == said[0])
        elif exprs[j] is None or is_rest(exprs[j]):
            count = int(place in left)
        else:
            while place in left and before[place].known and _other(axes, before, left, place, letters):
                matched.append((range(place, place + 1), range(j, j)))
                place += 1
            count = 0
            while place + count in left and before[place + count].label in letters - {None}:
                count += 1
        matched.append((range(place, place + count), range(j, j + 1)))
        place += count
    return [
        *matched,
        *((range(i, i + 1), range(right.stop, right.stop)) for i in range(place, left.stop)),
    ]


def _other(axes: Axes, before: Dims, left: range, place: int, letters: set[str | None]) -> bool:
    """Whether the axis at `place` is not the one that `letters` name, while a later one is."""
    later = {before[i].label for i in left if i > place}
    return before[place].label not in letters and bool(later & letters)


def _belong(
    axes: Axes,
    event: Event,
    one: tuple[range, range],
    two: tuple[range, range],
    before: Dims,
    exprs: list[Said],
) -> bool:
    parts = [before[place] for place in (*one[0], *two[0])]
    said = [exprs[place] for place in (*one[1], *two[1])]
    if _folds(axes, event, parts, said) or _unfolds(axes, event, parts, said):
        return True
    if one[1] and two[1] and len(one[0]) + len(two[0]) <= 1:
        # An axis of the source beside a factor of size 1 of its own.
        first, last = exprs[one[1].start], exprs[two[1].stop - 1]
        letters = axes.letter(event, first), axes.letter(event, last)
        if not one[0] and not two[0]:
            return letters[0] in ("H", "G") and is_one(last)
        dim = before[(*one[0], *two[0])[0]]
        factors = [factor.label for factor in dim.root().factors or ()]
        if dim.label in ("B", "T", "S") or is_one(first) or is_one(last):
            return False
        if factors:
            return all(letter in factors or letter is None for letter in letters)
        if letters[1] == "D" or (letters[1] is None and is_rest(last)):
            heads = {"H", "G"} & {axes.letter(event, exprs[j]) for j in one[1]}
            return bool(heads) or (letters[0] is None and is_rest(first))
        return letters[0] in ("H", "G") and not one[0]
    if len(one[1]) + len(two[1]) == 1:  # an axis of size 1 that is merged into its neighbour
        parts = [before[place] for place in (*one[0], *two[0])]
        if axes.space.product(parts) is not None:
            return True
        expr = exprs[(*one[1], *two[1])[0]]
        return isinstance(expr, ast.BinOp) and all(dim.label in axes.letters(event, expr) for dim in parts)
    return False


def group(axes: Axes, event: Event, part: list[Dim], sizes: list[int], exprs: list[Said]) -> list[Dim]:
    if not part or not sizes:
        return [axes.factor(event, expr, size) or Dim(size) for expr, size in zip(exprs, sizes, strict=True)]
    if len(part) == 1 and len(sizes) == 1:
        return [_same(axes, event, part[0], exprs[0])]
    if len(part) == 1:
        return _split(axes, event, part[0], sizes, exprs)
    if len(sizes) == 1:
        return [merge(axes, event, part, exprs[0])]
    if _folds(axes, event, part, exprs) and part[1].size % sizes[1] == 0:
        heads, inner = _split(axes, event, part[1], [part[1].size // sizes[1], sizes[1]], [None, exprs[1]])
        return [merge(axes, event, [part[0], heads], None), inner]
    if _unfolds(axes, event, part, exprs):
        batch, heads = part[0].root().factors or ()
        return [batch, merge(axes, event, [heads, part[1]], exprs[1])]
    fine = [atom for dim in part for atom in atoms(dim)]
    groups = regroup([atom.size for atom in fine], sizes)
    if groups is not None and (len(groups) > 1 or len(fine) == len(sizes)) and len(fine) > len(part):
        result: list[Dim] = []
        for left, right in groups:
            atoms_here = [fine[i] for i in left]
            result += group(axes, event, atoms_here, [sizes[j] for j in right], [exprs[j] for j in right])
        return result
    return [Dim(size, mixed=True) for size in sizes]


def _folds(axes: Axes, event: Event, part: Sequence[Dim], exprs: Sequence[Said]) -> bool:
    """`view(T, B * H, D)` of [T, B, C]: the channels are cut into heads, which join the batch."""
    if [dim.label for dim in part] != ["B", "C"] or len(exprs) != 2:
        return False
    return {"B", "H"} <= axes.letters(event, exprs[0]) and axes.letter(event, exprs[1]) == "D"


def _unfolds(axes: Axes, event: Event, part: Sequence[Dim], exprs: Sequence[Said]) -> bool:
    """`view(T, B, C)` of [T, B·H, D]."""
    if [dim.label for dim in part] != ["B·H", "D"] or len(exprs) != 2:
        return False
    return [axes.letter(event, expr) for expr in exprs] == ["B", "C"]


def _same(axes: Axes, event: Event, dim: Dim, expr: Said) -> Dim:
    if not dim.known and not dim.root().mixed:
        named = axes.factor(event, expr, dim.size)
        if named is not None:
            dim.become(named)
    return dim


def _split(axes: Axes, event: Event, dim: Dim, sizes: list[int], exprs: list[Said]) -> list[Dim]:
    root = dim.root()
    if root.mixed:
        return [Dim(size, mixed=True) for size in sizes]
    heads = axes.factor(event, exprs[0], sizes[0])
    heads_first = heads is not None and heads.label in ("H", "G")
    if root.times is not None and root.times[0] == sizes[0] and not heads_first:
        rest = sizes[1:]
        inner = [root.times[1]]
        if len(rest) > 1:
            inner = _split(axes, event, root.times[1], rest, exprs[1:])
        return [Dim(sizes[0]), *inner]
    if root.factors is not None:
        groups = regroup([factor.size for factor in root.factors], sizes)
        if groups is not None and all(len(left) == 1 for left, _ in groups):
            result: list[Dim] = []
            for left, right in groups:
                inner_exprs = [exprs[j] for j in right]
                result += group(
                    axes, event, [root.factors[i] for i in left], [sizes[j] for j in right], inner_exprs
                )
            return result
        if root.merged:
            return [Dim(size, mixed=True) for size in sizes]
    dims = [axes.factor(event, expr, size) for expr, size in zip(exprs, sizes, strict=True)]
    _drop_repeats(axes, dims, root)
    unknown = [i for i, found in enumerate(dims) if found is None]
    letters = {found.label for found in dims if found is not None}
    whole = root.label not in ("H", "G", "D")  # heads that are cut again are no channels
    if len(unknown) == 1 and letters & {"H", "G"} and "D" not in letters and whole:
        size = sizes[unknown[0]]
        count = root.times[0] if root.times is not None and size % root.times[0] == 0 else 1
        dims[unknown[0]] = axes.space.multiple(count, axes.space.named("D", size // count))
    elif len(unknown) == 1 and letters == {"D"} and len(sizes) == 2:
        dims[unknown[0]] = axes.heads(sizes[unknown[0]])
    elif len(unknown) == 2 and len(sizes) == 2 and root.label == "C":
        heads = axes.space.find("H", sizes[0])
        if heads is not None:
            dims = [heads, axes.space.named("D", sizes[1])]
    final = [found or Dim(size) for found, size in zip(dims, sizes, strict=True)]
    if all(found.known for found in final):
        axes.space.is_product(root, final)
    return final


def _drop_repeats(axes: Axes, dims: list[Dim | None], whole: Dim) -> None:
    """A factor cannot be the whole, nor can two factors be one dimension."""
    seen: set[int] = set()
    for i, dim in enumerate(dims):
        if dim is None:
            continue
        # Channels hold heads: an axis cut out of C is not T or B, whatever its expression says.
        outside = whole.label in ("C", "H·D") and dim.label in ("T", "B", "S", "C")
        if id(dim.root()) in seen or dim.root() is whole or outside:
            dims[i] = None
        seen.add(id(dim.root()))


def merge(axes: Axes, event: Event, part: list[Dim], expr: Said) -> Dim:
    whole = axes.space.product(part)
    if whole is not None:
        return whole
    real = [dim for dim in part if dim.size != 1 or dim.known] or part[:1]
    if len(real) == 1:
        return real[0]
    if any(dim.root().mixed for dim in real):
        return Dim(total(real), mixed=True)
    known = axes.space.product(real)
    if known is not None:
        return known
    if len(real) == 2:  # rotary pairs: the halves of D, taken side by side, are D again
        for one, other in (real, real[::-1]):
            part_of = one.root().part
            if part_of is not None and part_of[1] == other.size and not other.known:
                return part_of[0]
    said = axes.factor(event, expr, total(real))
    labels = [dim.label for dim in real]
    if said is not None and not said.root().mixed:
        heads_first = labels[0] in ("H", "G") and labels[-1] in ("D", None)
        repeated = labels[0] == "G" and said.label == "H"
        if repeated or (heads_first and said.label == "C") or None in labels[:1]:
            axes.space.is_product(said, real)
            return said
    if labels[0] == "G":
        heads = axes.space.find("H", total(real))
        if heads is not None and len(real) == 2 and labels[1] not in ("D", "T", "S"):
            return heads
    return axes.space.composite(real)
