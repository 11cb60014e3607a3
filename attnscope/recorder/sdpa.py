"""The weights inside `F.scaled_dot_product_attention`, recomputed from its arguments.

The function returns no weights; its documentation defines them as softmax(q kᵀ · scale + mask), with
scale = 1 / √D by default, a boolean mask that is True where a query may attend, and `is_causal` aligned
to the upper left corner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True, slots=True)
class Parts:
    """Scores before the mask, what the softmax was given, and the weights, each [..., H, T, S]."""

    operands: tuple[Tensor, Tensor, Tensor]
    scores: Tensor
    masked: Tensor
    weights: Tensor
    is_causal: bool
    scale: float
    note: str


def recompute(args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Tensor) -> Parts:
    """The parts of one call, checked against its own output [..., H, T, D] unless dropout ran."""
    given = dict(zip(_NAMES, args, strict=False)) | dict(kwargs)
    with torch.no_grad():
        query, key, value = (given[name].detach() for name in _NAMES[:3])
        if given.get("enable_gqa") and query.ndim >= 3:
            key = key.repeat_interleave(query.size(-3) // key.size(-3), dim=-3)
            value = value.repeat_interleave(query.size(-3) // value.size(-3), dim=-3)
        scale = given.get("scale")
        scale = 1 / math.sqrt(query.size(-1)) if scale is None else float(scale)
        scores = (query @ key.transpose(-2, -1)) * scale
        masked = _mask(scores, given.get("attn_mask"), bool(given.get("is_causal")))
        weights = torch.softmax(masked, dim=-1)
        if not masked.is_meta:
            # A row without any allowed key gives zeros here, where softmax alone gives NaN.
            weights = torch.where((masked == float("-inf")).all(-1, keepdim=True), 0.0, weights)
        note = ""
        if given.get("dropout_p"):
            note = f"dropout {given['dropout_p']} was active inside the call: these are the weights before it"
        elif not output.is_meta:
            difference = (weights.to(value.dtype) @ value - output).abs().nan_to_num().max().item()
            size = max(1.0, output.abs().nan_to_num().max().item())
            if difference > _TOLERANCE.get(output.dtype, 1e-4) * size:
                note = f"recomputed weights differ from the call's own output by {difference:.2g}"
    return Parts((query, key, value), scores, masked, weights, bool(given.get("is_causal")), scale, note)


def _mask(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        shape = scores.shape[-2:]
        allowed = torch.ones(shape, dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    if mask is None:
        return scores
    mask = mask.detach()
    return scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
