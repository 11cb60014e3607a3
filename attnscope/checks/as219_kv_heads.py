"""AS219: key/value heads are repeated in the wrong order.

With fewer key/value heads than query heads, neighbouring query heads share one: heads 0 and 1 use key head 0,
heads 2 and 3 key head 1. `repeat` lays whole copies one after the other instead: 0, 1, 0, 1.

It is bad because weights of a checkpoint then meet heads that they were not trained with; and where keys and
values are repeated differently, no head has its own values.

Example:

    import torch
    from torch import nn
    from torch.nn import functional as F

    class Example(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x):
            b, t, c = x.shape
            q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
            k, v = (u.view(b, t, 2, 4).transpose(1, 2) for u in self.kv(x).chunk(2, -1))
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(b, t, c)

Cure: `repeat_interleave(heads // kv_heads, dim=1)`, or `enable_gqa=True`.

    - k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
    + k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from attnscope.checks.lab import Lab
from attnscope.checks.maps import Map
from attnscope.diagnostic import Diagnostic, Tried
from attnscope.ops.catalog import REPEATS

CODE = "AS219"


def check(lab: Lab) -> Iterator[Diagnostic | Tried]:
    said = False
    for one in lab.maps:
        keys, values = _pattern(one, "k", lab), _pattern(one, "v", lab)
        pattern = keys or values
        if pattern is None or keys is None or values is None:
            continue
        heads, groups = len(keys), len(set(keys))
        right = tuple(head // (heads // groups) for head in range(heads)) if heads % groups == 0 else None
        good = keys == right and values == right
        if not said:
            yield Tried("key/value heads", f"{heads} query heads share {groups}", good)
            said = True
        if good or right is None:
            continue
        tiled = tuple(head % groups for head in range(heads))
        if keys != tiled and values != tiled and keys == values:
            continue  # an order of its own, the same for both
        rows = [("query head", *map(str, range(min(heads, 8)))), ("key head", *map(str, keys[:8])),
                ("value head", *map(str, values[:8])), ("usual", *map(str, right[:8]))]  # fmt: skip
        yield Diagnostic(
            CODE,
            "error",
            "key and value heads are repeated in different orders"
            if keys != values
            else "key/value heads are repeated in the wrong order",
            lab.span(_repeat(one, lab)),
            "whole copies one after the other",
            (),
            (),
            "use `repeat_interleave(heads // kv_heads, dim=…)`, which keeps copies side by side",
            tuple(rows),
        )
        return


def _pattern(one: Map, name: str, lab: Lab) -> tuple[int, ...] | None:
    """For each head of a repeated tensor, which distinct head it is; None where none is repeated."""
    tensor = one.found.tensors.get(name)
    if not isinstance(tensor, Tensor) or tensor.ndim < 3:
        return None
    heads = one.shape[1]
    value = tensor.detach().double().cpu().numpy()
    if heads < 2:
        return None
    if tensor.ndim == 4:
        axis = next((i for i in (1, 2, 0) if value.shape[i] == heads), None)
        if axis is None:
            return None
        rows = np.moveaxis(value, axis, 0)
    elif tensor.ndim == 3 and value.shape[0] % heads == 0:
        rows = value.reshape(-1, heads, *value.shape[1:])[0]
    else:
        return None
    found: list[Any] = []
    pattern = []
    for row in rows:
        same = next((i for i, other in enumerate(found) if np.array_equal(other, row)), None)
        if same is None:
            found.append(row)
            same = len(found) - 1
        pattern.append(same)
    return tuple(pattern) if 1 < len(found) < heads else None


def _repeat(one: Map, lab: Lab) -> int | None:
    product = one.found.product
    if product is None:
        return one.event
    ancestors = lab.lineage.ancestors(product.right)
    if one.found.value_serial is not None:
        ancestors |= lab.lineage.ancestors(one.found.value_serial)
    found = None
    for index, event in enumerate(lab.lineage.events):
        if event.op.name in REPEATS | {"expand", "cat", "stack"} and any(
            out in ancestors for out in event.outputs
        ):
            found = index
    return found if found is not None else one.event
