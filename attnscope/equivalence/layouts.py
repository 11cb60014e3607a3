"""Known layouts of attention weights, as permutations of addresses.

Each way of keeping q, k, v and the output projection is read into one canonical form: q, k, v as
[H·D, C] with head h in rows h·D to (h+1)·D, the output as [C, H·D], biases likewise. Reading both modules'
addresses so gives, number by number, which of A belongs where in B. Only layouts that real checkpoints use
are known here; no other permutation is ever tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from attnscope.equivalence.parameters import Param

FUSED = ("flat", "per head", "innermost")
_SAYS = {
    "flat": "rows q | k | v",
    "per head": "rows q | k | v of each head in turn (as GPT-NeoX)",
    "innermost": "q, k, v of each channel in turn",
}


@dataclass(frozen=True)
class Reading:
    """How one side's weights are read: its fused rows, and whether raw square weights are [in, out]."""

    fused: str = "flat"
    turned: bool = False
    pairs: str = ""


def readings(params: Sequence[Param], heads: int | None) -> list[Reading]:
    """The readings that can differ for these parameters, the usual one first."""
    fused = any(p.role in ("qkv", "kv") and p.head is None for p in params)
    raw = any(p.turned is None and p.role != "other" and _square(p) for p in params)
    ways = FUSED if fused and heads and heads > 1 else ("flat",)
    return [Reading(way, turned) for turned, way in product((False, True) if raw else (False,), ways)]


def _square(p: Param) -> bool:
    return p.value.dim() in (2, 3) and p.shape[-1] == p.shape[-2]


def describe(a: Reading, b: Reading, fused_a: bool, fused_b: bool) -> str:
    """What was taken, in words; empty for what needs no saying."""
    said = []
    for side, reading, fused in (("A", a, fused_a), ("B", b, fused_b)):
        if fused:
            said.append(f"{side}'s fused weight is read as {_SAYS[reading.fused]}")
        if reading.turned:
            said.append(f"{side}'s square weights are read as [in, out]")
    if a.pairs:
        said.append(f"rows of q and k are put from {a.pairs} rotary pairs")
    return "; ".join(said)


def canonical(params: Sequence[Param], reading: Reading, heads: int | None, width: int) -> dict[str, Tensor]:
    """Addresses in canonical form by key: `q.weight` [H·D, C], `q.bias` [H·D], `o.weight` [C, H·D], `o.bias`.

    `params` are those of one attention, `width` is C. What cannot be read is left out.
    """
    by: dict[tuple[str, str], list[Param]] = {}
    for p in params:
        by.setdefault((p.role, p.part), []).append(p)
    found: dict[str, Tensor] = {}
    for (role, part), group in by.items():
        group = sorted(group, key=lambda p: p.head if p.head is not None else -1)
        if role in ("q", "k", "v"):
            found[f"{role}.{part}"] = torch.cat([_rows(p, reading, width) for p in group])
        elif role in ("qkv", "kv"):
            names = "qkv" if role == "qkv" else "kv"
            pieces: dict[str, list[Tensor]] = {name: [] for name in names}
            for p in group:
                rows = _rows(p, reading, width)
                single = p.head is not None
                for name, piece in zip(
                    names, _split(rows, names, reading, 1 if single else heads, by), strict=False
                ):
                    pieces[name].append(piece)
            for name, parts in pieces.items():
                if parts:
                    found[f"{name}.{part}"] = torch.cat(parts)
        elif role == "o" and len(group) == 1:
            found[f"o.{part}"] = _out(group[0], reading, width)
    if reading.pairs and heads:
        for name in ("q", "k"):
            for part in ("weight", "bias"):
                turned = found.get(f"{name}.{part}")
                if turned is not None and turned.shape[0] % (2 * heads) == 0:
                    found[f"{name}.{part}"] = _repair(turned, heads, reading.pairs)
    return found


def _rows(p: Param, reading: Reading, width: int) -> Tensor:
    """A projection's addresses as [out, C], a bias's as [out]."""
    flat = p.flat
    if p.part == "bias" or flat.dim() == 1:
        return flat.reshape(-1)
    if flat.dim() == 3:  # one matrix for each head: [H, C, D], or [H, D, C]
        turned = flat.shape[1] == width and (flat.shape[2] != width or not reading.turned)
        flat = flat.transpose(1, 2) if turned else flat
        return flat.reshape(-1, flat.shape[-1])
    if flat.dim() != 2:
        return flat.reshape(flat.shape[0], -1)
    return flat.T if _is_turned(p, reading, width) else flat


def _is_turned(p: Param, reading: Reading, width: int) -> bool:
    if p.turned is not None:
        return p.turned
    if p.shape[0] == p.shape[1]:
        return reading.turned
    return p.shape[0] == width


def _out(p: Param, reading: Reading, width: int) -> Tensor:
    flat = p.flat
    if p.part == "bias" or flat.dim() == 1:
        return flat.reshape(-1)
    if flat.dim() == 3:  # [H, D, C]
        return flat.reshape(-1, flat.shape[-1]).T
    if p.turned is None and p.shape[0] != p.shape[1]:
        return flat if p.shape[0] == width else flat.T
    return flat.T if (p.turned or (p.turned is None and reading.turned)) else flat


def _split(
    rows: Tensor, names: str, reading: Reading, heads: int | None, by: dict[tuple[str, str], list[Param]]
) -> Sequence[Tensor]:
    """Rows of a fused projection as q, k, v (or k, v), each with its heads in order."""
    count = len(names)
    total = rows.shape[0]
    out = by.get(("o", "weight"))
    if names == "qkv" and out and heads != 1:
        queries = _out(out[0], reading, 0).shape[1]
        each, rest = divmod(total - queries, 2)
        if total != 3 * queries and each > 0 and not rest:  # fewer key/value heads than query heads
            return torch.split(rows, [queries, each, each])
    if total % count:
        return ()
    if reading.fused == "per head" and heads and total % (count * heads) == 0:
        cut = rows.reshape(heads, count, -1, *rows.shape[1:])
        return [cut[:, i].reshape(total // count, *rows.shape[1:]) for i in range(count)]
    if reading.fused == "innermost":
        cut = rows.reshape(total // count, count, *rows.shape[1:])
        return [cut[:, i] for i in range(count)]
    return rows.chunk(count)


def _repair(rows: Tensor, heads: int, pairs: str) -> Tensor:
    """Rotary pairs of each head: (0, 1), (2, 3) … as (0, D/2), (1, D/2 + 1) …, or back."""
    if pairs == "interleaved to half-split":
        cut = rows.reshape(heads, -1, 2, *rows.shape[1:])
    else:
        cut = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return cut.transpose(1, 2).reshape(rows.shape)


def join_heads(a: Tensor, b: Tensor, groups: int | None) -> Tensor | None:
    """A's rows for B: the same, or key/value heads repeated for B's query heads; None if they do not fit."""
    if a.shape == b.shape:
        return a
    if a.shape[1:] == b.shape[1:] and groups and b.shape[0] % a.shape[0] == 0 and a.shape[0] % groups == 0:
        cut = a.reshape(groups, -1, *a.shape[1:])
        return cut.repeat_interleave(b.shape[0] // a.shape[0], 0).reshape(b.shape)
    return None


def rotary(readings: Sequence[Reading]) -> Iterator[Reading]:
    """The readings again with the rows of q and k put from one pairing of rotary embeddings to the other."""
    for pairs in ("interleaved to half-split", "half-split to interleaved"):
        for reading in readings:
            yield Reading(reading.fused, reading.turned, pairs)
