"""Which keys the scores leave open, and whether what is added to scores is a mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Below every other score of its row by more than this, a score was blocked by a mask, not by the data.
_FAR_BELOW = 1000.0


def looks_like_a_mask(tensor: Tensor, name: str) -> bool:
    """Whether what is added to scores (or multiplied) allows and blocks, and is no bias of many values."""
    if tensor.is_meta or tensor.dtype is torch.bool or tensor.numel() == 0:
        return True
    with torch.no_grad():
        low, high = torch.aminmax(tensor.detach())
        if not name.startswith("mul") and not float(low) >= -_FAR_BELOW:  # also NaN: zero times infinity
            return True
        return bool(low != high) and bool(((tensor == low) | (tensor == high)).all())


def allowed(masked: Tensor, weights: Tensor, dim: int) -> Any:
    """True where the softmax could give weight: what was in fact applied, in the layout of the source.

    Heads and batch entries with the same mask share its memory.
    """
    if masked.is_meta:
        return None
    if masked.numel() == 0:
        return torch.ones(masked.shape, dtype=torch.bool).numpy()
    if masked.ndim < 3 or dim != masked.ndim - 1:
        return _open(masked, weights, dim).cpu().numpy()
    kinds: list[Tensor] = []
    which: list[int] = []
    # One [T, S] at a time: of a long text, all heads at once would need several times the mask's memory.
    for scores, given in zip(masked.flatten(0, -3), weights.flatten(0, -3), strict=True):
        one = _open(scores, given, scores.ndim - 1)
        recent = range(len(kinds) - 1, max(len(kinds) - 5, -1), -1)
        place = next((i for i in recent if torch.equal(kinds[i], one)), len(kinds))
        if place == len(kinds):
            kinds.append(one)
        which.append(place)
    if len(kinds) == 1:
        return kinds[0].cpu().expand(masked.shape).numpy()
    return torch.stack([kinds[place] for place in which]).reshape(masked.shape).cpu().numpy()


def _open(masked: Tensor, weights: Tensor, dim: int) -> Tensor:
    values = masked.float()
    top = values.amax(dim=dim, keepdim=True)
    blocked = (weights == 0).logical_and_(values < top - _FAR_BELOW)
    return blocked.logical_or_(values == float("-inf")).logical_not_()
