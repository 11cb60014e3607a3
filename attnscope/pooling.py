"""Attention reduced for the eye: sum over the keys of a block, mean over its queries.

Rows of the result still sum to 1, and a diagonal one cell wide keeps its peak; the mean over both would show
it at 1/8 when 1024 becomes 128, and taking every n-th cell would lose it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.schema import Pooled


def pool_size(length: int, cells: int) -> int:
    """The smallest power of two `f` such that `length` positions in blocks of `f` fit `cells` cells."""
    factor = 1
    while -(-length // factor) > max(1, cells):
        factor *= 2
    return factor


def pool_blocks(matrix: NDArray[Any], rows: int, cols: int) -> NDArray[np.float32]:
    """[..., T, S] to [..., ceil(T / rows), ceil(S / cols)]: summed over keys, averaged over queries, float32.

    The last block of an axis may be shorter; its mean is over the queries that it has.
    """
    queries, keys = matrix.shape[-2:]
    if queries == 0 or keys == 0:
        return np.zeros((*matrix.shape[:-2], -(-queries // rows), -(-keys // cols)), np.float32)
    # Half precision and booleans are summed in float32; `dtype` keeps a copy of the whole from being made.
    total: Any = np.float64 if matrix.dtype == np.float64 else np.float32
    key_starts = np.arange(0, keys, cols)
    query_starts = np.arange(0, queries, rows)
    summed = np.add.reduceat(matrix, key_starts, axis=-1, dtype=total)
    pooled = np.add.reduceat(summed, query_starts, axis=-2, dtype=total)
    sizes = np.diff(np.append(query_starts, queries))
    result: NDArray[np.float32] = (pooled / sizes[:, None]).astype(np.float32)
    return result


def top_keys(matrix: NDArray[Any], top: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The `top` heaviest keys of each query of [T, S], heaviest first, the earlier of equals first.

    NaN is lighter than every weight, and stays NaN in the weights returned.
    """
    queries, keys = matrix.shape
    top = min(top, keys)
    if top <= 0 or queries == 0:
        return np.zeros((queries, 0), np.int64), np.zeros((queries, 0), np.float32)
    left = np.where(np.isnan(matrix), -np.inf, matrix).astype(np.float32)
    index = np.empty((queries, top), np.int64)
    every = np.arange(queries)
    for place in range(top):
        best = left.argmax(axis=1)
        index[:, place] = best
        left[every, best] = -np.inf
        if place:
            # Behind the last finite weight argmax finds the first key again: take the next unused one.
            again = (index[:, :place] == best[:, None]).any(axis=1)
            for query in np.flatnonzero(again):
                used = set(index[query, :place].tolist())
                index[query, place] = next(key for key in range(keys) if key not in used)
    weights = np.take_along_axis(matrix, index, axis=1).astype(np.float32)
    return index, weights


def pool(weights: NDArray[Any], rows: int, cols: int, top: int) -> Pooled:
    """Reduce weights [B, H, T, S]: one cell for `rows` queries and `cols` keys, and the `top` keys per query.

    The heads are taken one after another, so that beyond the result one head's [T, S] is the most that is
    held at a time.
    """
    if weights.ndim != 4:
        raise ValueError(f"weights must be [B, H, T, S], not of {weights.ndim} axes")
    if rows < 1 or cols < 1:
        raise ValueError(f"blocks of {rows} x {cols} hold nothing")
    batch, heads, queries, keys = weights.shape
    kept = max(0, min(top, keys))
    cells = np.empty((batch, heads, -(-queries // rows), -(-keys // cols)), np.float32)
    index = np.empty((batch, heads, queries, kept), np.int64)
    heaviest = np.empty((batch, heads, queries, kept), np.float32)
    for entry in range(batch):
        for head in range(heads):
            matrix = weights[entry, head]
            cells[entry, head] = pool_blocks(matrix, rows, cols)
            index[entry, head], heaviest[entry, head] = top_keys(matrix, kept)
    return Pooled(cells, (rows, cols), index, heaviest)
