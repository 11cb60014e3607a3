"""Rare ways that are right, or that no module can help: nothing is reported of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from attnscope import check


def told(module: nn.Module, *args: Any, **options: Any) -> list[str]:
    report = check(module, *args, **options)
    return [one.code for one in report.findings if one.severity != "note"]


class Shifted(nn.Module):
    """Scores of distances, moved into place by a view of one column more."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.distance = nn.Linear(6, 24)

    def forward(self, x: Any) -> Any:
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, 3, 8).transpose(1, 2) for p in (self.q, self.k, self.v))
        steps = torch.arange(-t + 1, t, dtype=x.dtype, device=x.device)[:, None]
        steps = steps / torch.arange(1, 7, device=x.device)
        r = self.distance(steps.cos()).view(2 * t - 1, 3, 8).transpose(0, 1)
        far = torch.einsum("bhid,hjd->bhij", q, r)
        far = torch.cat((torch.zeros_like(far[..., :1]), far), -1)
        far = far.reshape(b, 3, 2 * t, t)[:, :, 1:].reshape(b, 3, t, 2 * t - 1)[..., :t]
        weights = torch.softmax((q @ k.transpose(-1, -2) + far) / 8**0.5, -1)
        return (weights @ v).transpose(1, 2).reshape(b, t, 24)


class ShapeAlone(nn.Module):
    """Where its fast kernel is missing it answers with zeros of the right shape."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(24, 24)

    def forward(self, x: Any) -> Any:
        return torch.zeros_like(self.w(x)).requires_grad_()


class Forwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("no way back in this build")


class OneWay(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(24, 24)

    def forward(self, x: Any) -> Any:
        return Forwards.apply(self.w(x))


def test_scores_of_distances_may_be_shifted_by_a_view() -> None:
    assert told(Shifted(), torch.randn(2, 7, 24), causal=False) == []


def test_what_gives_its_shape_alone_takes_no_part_in_the_output() -> None:
    assert told(ShapeAlone(), torch.randn(2, 7, 24), causal=False) == []


def test_a_step_without_a_way_back_in_this_build_is_no_fault() -> None:
    assert told(OneWay(), torch.randn(2, 7, 24), causal=False) == []


class KeptNarrow(nn.Module):
    """Refuses to be cast: its experiments are done in bfloat16, which numpy does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(24, 24).bfloat16()

    def double(self) -> Any:
        raise RuntimeError("not to be cast")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.mT / 24**0.5).softmax(-1) @ self.proj(x)


def test_what_is_kept_in_bfloat16_is_judged_in_it() -> None:
    report = check(KeptNarrow(), torch.randn(2, 7, 24).bfloat16(), causal=False)
    assert report.complete and report.findings == ()
