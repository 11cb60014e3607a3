"""`rearrange`, `repeat`, `reduce`, `pack`, `unpack`, `einsum` where a file imports einops and it is missing.

Patterns mean what the einops documentation says; what this does not know raises `ValueError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Group = list[str]
_DOTS = "... alone"


def _groups(side: str) -> list[Group]:
    groups: list[Group] = []
    for item in re.findall(r"\([^()]*\)|\S+", side):
        groups.append(item[1:-1].split() if item.startswith("(") else [_DOTS if item == "..." else item])
    return groups


def _expand(groups: list[Group], extra: int) -> list[Group]:
    """`...` becomes `extra` axes of their own names; inside brackets they are merged."""
    names = [f"…{i}" for i in range(extra)]
    out: list[Group] = []
    for group in groups:
        if group == [_DOTS]:
            out.extend([n] for n in names)
        else:
            out.append([n for g in group for n in (names if g == "..." else [g])])
    return out


def _split(
    x: Tensor, pattern: str, sizes: dict[str, int]
) -> tuple[Tensor, list[str], list[Group], dict[str, int]]:
    """`x` with one axis for each name of the left side, those names, the right side, and all sizes."""
    left_text, arrow, right_text = pattern.partition("->")
    if not arrow:
        raise ValueError(f"pattern {pattern!r} has no ->")
    left, right = _groups(left_text), _groups(right_text)
    has_dots = any(g == [_DOTS] for g in left)
    extra = x.dim() - (len(left) - has_dots)
    if extra < 0 or (extra > 0 and not has_dots):
        raise ValueError(f"pattern {pattern!r} wants {len(left)} axes, the tensor has shape {list(x.shape)}")
    left, right = _expand(left, extra), _expand(right, extra)
    known = dict(sizes)
    shape: list[int] = []
    names: list[str] = []
    for group, size in zip(left, x.shape, strict=True):
        fixed = [int(n) if n.isdigit() else known.get(n) for n in group]
        free = [i for i, f in enumerate(fixed) if f is None]
        product = math.prod(f for f in fixed if f is not None)
        if len(free) > 1 or (free and (product == 0 or size % product)) or (not free and product != size):
            raise ValueError(f"axis of size {size} cannot be ({' '.join(group)}) in {pattern!r} with {sizes}")
        for i in free:
            fixed[i] = size // product
        for name, value in zip(group, fixed, strict=True):
            assert value is not None
            if name.isdigit():
                if value != 1:
                    raise ValueError(f"{name} on the left of {pattern!r}: only 1 can stand there")
                continue
            if known.setdefault(name, value) != value:
                raise ValueError(f"axis {name} is {known[name]} and {value} in {pattern!r}")
            names.append(name)
            shape.append(value)
    return (x if list(x.shape) == shape else x.reshape(shape)), names, right, known


def _merge(x: Tensor, right: list[Group], sizes: dict[str, int]) -> Tensor:
    shape = [math.prod(int(n) if n.isdigit() else sizes[n] for n in g) for g in right]
    return x if list(x.shape) == shape else x.reshape(shape)


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **sizes: int) -> Tensor:
    """Permute, split and merge axes: `rearrange(x, "b t (h d) -> b h t d", h=3)`."""
    x = torch.stack(list(tensor)) if isinstance(tensor, (list, tuple)) else tensor
    assert isinstance(x, Tensor)
    x, names, right, known = _split(x, pattern, sizes)
    wanted = [n for g in right for n in g if not n.isdigit()]
    if sorted(wanted) != sorted(names):
        raise ValueError(f"the two sides of {pattern!r} name different axes")
    order = [names.index(n) for n in wanted]
    return _merge(x if order == sorted(order) else x.permute(order), right, known)


def repeat(tensor: Tensor, pattern: str, **sizes: int) -> Tensor:
    """As `rearrange`, and a name that only the right side has is a new axis of copies."""
    x, names, right, known = _split(tensor, pattern, sizes)
    wanted = [n for g in right for n in g if n != "1"]
    kept = [n for n in wanted if n in names]
    if sorted(kept) != sorted(names):
        raise ValueError(f"the right side of {pattern!r} lacks an axis of the left")
    x = x.permute([names.index(n) for n in kept])
    for i, name in enumerate(wanted):
        if name not in names:
            size = int(name) if name.isdigit() else known.get(name)
            if size is None:
                raise ValueError(f"the size of {name} in {pattern!r} is not given")
            x = x.unsqueeze(i)
            x = x.expand(*x.shape[:i], size, *x.shape[i + 1 :])
    return _merge(x, right, known)


def reduce(tensor: Tensor, pattern: str, reduction: str, **sizes: int) -> Tensor:
    """As `rearrange`, and a name that only the left side has is reduced: mean, sum, max, min, prod."""
    x, names, right, known = _split(tensor, pattern, sizes)
    wanted = [n for g in right for n in g if not n.isdigit()]
    gone = [n for n in names if n not in wanted]
    for name in gone:
        axis = names.index(name)
        if reduction in ("max", "min"):
            x = x.amax(axis) if reduction == "max" else x.amin(axis)
        elif reduction in ("mean", "sum", "prod"):
            x = getattr(x, reduction)(axis)
        else:
            raise ValueError(f"reduction {reduction!r} is not known")
        names = names[:axis] + names[axis + 1 :]
    return _merge(x.permute([names.index(n) for n in wanted]), right, known)


def pack(tensors: Sequence[Tensor], pattern: str) -> tuple[Tensor, list[torch.Size]]:
    """Flatten the axes under `*` of each and concatenate; `unpack` undoes it."""
    before, _, after = pattern.partition("*")
    start, end = len(before.split()), len(after.split())
    flat = [t.reshape(*t.shape[:start], -1, *t.shape[t.dim() - end :]) for t in tensors]
    return torch.cat(flat, dim=start), [t.shape[start : t.dim() - end] for t in tensors]


def unpack(tensor: Tensor, shapes: Sequence[Sequence[int]], pattern: str) -> list[Tensor]:
    """The tensors that `pack` put together."""
    start = len(pattern.partition("*")[0].split())
    lengths = [math.prod(s) for s in shapes]
    if -1 in lengths:
        lengths[lengths.index(-1)] = tensor.shape[start] - sum(n for n in lengths if n != -1)
    parts = torch.split(tensor, lengths, dim=start)
    return [
        p.reshape(*p.shape[:start], *s, *p.shape[start + 1 :]) for p, s in zip(parts, shapes, strict=True)
    ]


def einsum(*args: Any) -> Tensor:
    """`einsum(a, b, "i j, j k -> i k")`; torch's own form (pattern first, letters) works as well."""
    if isinstance(args[0], str):
        return torch.einsum(*args)
    *tensors, pattern = args
    letters: dict[str, str] = {"...": "..."}
    for name in re.findall(r"\w+", pattern):
        letters.setdefault(name, chr(ord("a") + len(letters) - 1))
    left, _, right = pattern.partition("->")
    terms = ["".join(letters[n] for n in re.findall(r"\w+|\.\.\.", term)) for term in left.split(",")]
    return torch.einsum(
        ",".join(terms) + "->" + "".join(letters[n] for n in re.findall(r"\w+|\.\.\.", right)), *tensors
    )


class Rearrange(nn.Module):
    """`rearrange` as a layer."""

    def __init__(self, pattern: str, **sizes: int) -> None:
        super().__init__()
        self.pattern = pattern
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        """The axes of `pattern`'s left side in, those of its right side out."""
        return rearrange(x, self.pattern, **self.sizes)


class Reduce(nn.Module):
    """`reduce` as a layer."""

    def __init__(self, pattern: str, reduction: str, **sizes: int) -> None:
        super().__init__()
        self.pattern = pattern
        self.reduction = reduction
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        """The axes of `pattern`'s left side in, those of its right side out."""
        return reduce(x, self.pattern, self.reduction, **self.sizes)
