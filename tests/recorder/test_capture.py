"""Attention whose keys are written into place in parts, or whose weights are given out in parts."""

from __future__ import annotations

from typing import Any

import torch
from numpy.testing import assert_allclose
from torch import nn

from tests.showing import attend


class WrittenKeys(nn.Module):
    """Keys are put together in memory that was empty: half a projection, half one that all heads share."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.shared = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        q = self.q(x).unflatten(-1, (2, 4)).transpose(1, 2)
        k = q.new_empty(q.shape)
        k[..., :2] = self.k(x).unflatten(-1, (2, 2)).transpose(1, 2)
        k[..., 2:] = self.shared(x)[:, None]
        return torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ q


class GivenOut(nn.Module):
    """One softmax over two groups of keys; each group has values of its own."""

    def forward(self, x: Any, y: Any) -> Any:
        weights = torch.softmax(x @ torch.cat((x, y), 1).transpose(-1, -2), -1)
        first, second = (weights[..., part] for part in (slice(None, 5), slice(5, None)))
        return first @ x + second @ y


def test_keys_that_are_written_in_parts_are_keys() -> None:
    torch.manual_seed(0)
    module, x = WrittenKeys().eval(), torch.randn(2, 5, 8)
    (found,) = attend(module, x)
    q = module.q(x).unflatten(-1, (2, 4)).transpose(1, 2)
    k = torch.cat(
        (module.k(x).unflatten(-1, (2, 2)).transpose(1, 2), module.shared(x)[:, None].expand(-1, 2, -1, -1)),
        -1,
    )
    expected = torch.softmax(q @ k.transpose(-1, -2) / 2, -1).detach()
    assert_allclose(found.weights, expected.numpy(), atol=1e-6)


def test_weights_that_are_given_out_in_parts_are_no_sink() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    found = attend(GivenOut(), x, y)
    assert found and all(one.weights.size == 2 * 5 * one.shape[-1] for one in found)
    expected = torch.softmax(x @ torch.cat((x, y), 1).transpose(-1, -2), -1)
    assert_allclose(found[0].weights[:, 0], expected[..., :5].numpy(), atol=1e-6)
