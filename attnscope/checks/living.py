"""Parameters that hold nothing to experiment with: uninitialised memory, and gates that are closed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from attnscope.checks.subject import parts
from attnscope.sandbox.state import seeded


def parameters(module: nn.Module) -> Iterable[Tensor]:
    return (p for _, p in named(module))


def named(module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    for path, part in parts(module):
        for name, p in (vars(part).get("_parameters") or {}).items():
            if isinstance(p, nn.Parameter) and not isinstance(p, nn.parameter.UninitializedParameter):
                yield (f"{path}.{name}" if path else name), p


def is_garbage(p: Tensor) -> bool:
    """Numbers that no initialisation gives: what `torch.empty` found in memory."""
    if p.is_meta or not p.is_floating_point() or p.numel() == 0 or p.numel() > 1 << 24:
        return False
    values = p.detach().double()
    top = float(values.abs().max())
    return not np.isfinite(top) or top > 1e6 or 0 < top < 1e-20


def enliven(module: nn.Module, zeros: bool) -> None:
    """Give numbers to parameters that hold garbage and, with `zeros`, to those that are zero throughout."""
    with seeded(7), torch.no_grad():
        for _, p in named(module):
            if p.is_meta or not p.is_floating_point() or p.numel() == 0:
                continue
            bare = zeros and p.requires_grad and not bool(p.detach().any())
            if bare or is_garbage(p):
                fan = p.shape[-1] if p.dim() >= 2 else 100
                p.data.copy_(torch.randn(p.shape, dtype=torch.float64) / max(fan, 1) ** 0.5)
