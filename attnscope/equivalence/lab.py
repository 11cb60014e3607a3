"""Two modules with the same weights in them, ready to be run side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnscope.equivalence.calls import Calls, Result
from attnscope.equivalence.differences import TOLERANCE, Gap, gap
from attnscope.equivalence.moving import Plan
from attnscope.equivalence.parameters import Table


@dataclass
class Lab:
    """A and B with one plan of weights. `dtype` is what they are compared in, None for their own."""

    a: Calls
    b: Calls
    plan: Plan
    vector: Tensor
    own: Tensor
    dtype: torch.dtype | None
    tolerance: float

    @property
    def sides(self) -> tuple[Calls, Calls]:
        return self.a, self.b

    @property
    def batch(self) -> int:
        return min(self.a.batch, self.b.batch)

    @property
    def length(self) -> int:
        return min(self.a.length, self.b.length)

    def modules(
        self, dtype: torch.dtype | None = None, *, native: bool = False
    ) -> tuple[nn.Module, nn.Module]:
        """Fresh copies in evaluation mode with A's weights in both, cast to `dtype` (default: the lab's)."""
        wanted = None if native else dtype or self.dtype
        values = self.plan.values(self.vector, self.own)
        made = []
        for calls, vector in zip(self.sides, values, strict=True):
            module = calls.side.copied()
            Table(module).fill(vector)
            if wanted is not None:
                module.to(wanted)
            made.append(module)
        _share_statistics(made[0], made[1])
        return made[0], made[1]

    def both(
        self,
        modules: tuple[nn.Module, nn.Module],
        batch: int,
        length: int,
        *,
        seed: int = 1,
        grad: bool = False,
        dtype: torch.dtype | None = None,
        own: bool = False,
    ) -> tuple[Result, Result]:
        """Call both on the same first `length` tokens of the first `batch` entries.

        Inputs are cast to `dtype` (default: the lab's); with `own` they stay as they were given.
        """
        wanted = None if own else dtype or self.dtype
        results = []
        for calls, module in zip(self.sides, modules, strict=True):
            args, kwargs = calls.at(batch, length, wanted)
            results.append(calls.run(module, args, kwargs, seed=seed, grad=grad))
        return results[0], results[1]

    def gap(self, one: Result, two: Result, tolerance: float | None = None) -> Gap:
        """The gap of what two calls gave: of their first tensors, or of further ones that both give alike."""
        allowed = self.tolerance if tolerance is None else tolerance
        if not one.tensors or not two.tensors:
            same = len(one.tensors) == len(two.tensors)
            return Gap(0.0, allowed, shapes="" if same else "only one of them returns a tensor")
        first = gap(one.tensors[0], two.tensors[0], allowed)
        if first.equal and len(one.tensors) == len(two.tensors):
            for x, y in zip(one.tensors[1:], two.tensors[1:], strict=True):
                if x.shape == y.shape:
                    other = gap(x, y, allowed)
                    if not other.equal:
                        return other
        return first


def _share_statistics(a: nn.Module, b: nn.Module) -> None:
    """Running means and variances were learned like weights; other buffers are each module's own."""
    known = dict(a.named_buffers())
    for name, value in b.named_buffers():
        other = known.get(name)
        learned = name.rpartition(".")[2] in ("running_mean", "running_var")
        if learned and other is not None and other.shape == value.shape:
            value.copy_(other)


def tolerance_of(dtype: torch.dtype | None, single: bool) -> float:
    """What is allowed in `dtype`; with `single`, steps in float32 were seen inside."""
    if dtype is torch.float64 and not single:
        return TOLERANCE[torch.float64]
    return (
        TOLERANCE.get(dtype or torch.float32, 1e-5)
        if dtype is not torch.float64
        else TOLERANCE[torch.float32]
    )


def telling(table: Table, seed: int) -> Tensor:
    """A's own values, made telling: constant ones disturbed, tiny ones enlarged.

    Biases of 0 and norms of 1 would hide a wrong bias or norm; weights of 0.02 make every attention uniform.
    """
    vector = table.vector()
    generator = torch.Generator().manual_seed(seed + 1)
    for p in table.params:
        values = vector[p.flat]
        noise = torch.randn(p.flat.shape, generator=generator, dtype=torch.float64)
        if values.numel() == 0 or not bool(values.isfinite().all()):
            continue
        if bool((values == values.reshape(-1)[0]).all()):
            wanted = 1 / math.sqrt(p.shape[-1]) if len(p.shape) >= 2 else 0.2
            vector[p.flat] = values + wanted * noise * (0.25 if len(p.shape) == 0 else 1.0)
        elif len(p.shape) >= 2:
            least = 0.5 / math.sqrt(p.shape[-1])
            spread = float(values.std())
            if 0 < spread < least:
                vector[p.flat] = values * (least / spread)
    return vector
