"""Which tensors a result holds, and a change to each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from attnscope.sandbox.tensors import first_tensor, tensors_of, tree_map

IDS, LOGITS, CACHE = torch.zeros(2, dtype=torch.long), torch.ones(2), torch.full((3,), 2.0)


@dataclass
class Data:
    ids: Tensor
    logits: Tensor


class Named(NamedTuple):
    logits: Tensor
    cache: Tensor


class Object:
    def __init__(self) -> None:
        self.loss = None
        self.logits = LOGITS


def test_a_result_that_holds_itself_ends() -> None:
    endless: list[Any] = [LOGITS]
    endless.append(endless)
    assert next(tensors_of(endless)) is LOGITS


@pytest.mark.parametrize(
    ("result", "first"),
    [
        (LOGITS, LOGITS),
        ((IDS, LOGITS), LOGITS),
        ([nn.Linear(2, 2), LOGITS], LOGITS),
        ({"loss": None, "logits": LOGITS, "cache": CACHE}, LOGITS),
        (Data(IDS, LOGITS), LOGITS),
        (Named(LOGITS, CACHE), LOGITS),
        (Object(), LOGITS),
        ((IDS,), IDS),
        ((None, 3, "logits"), None),
        (nn.Linear(2, 2), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_first_tensor_of_a_result(result: Any, first: Tensor | None) -> None:
    assert first_tensor(result) is first


def test_one_tensor_given_twice_stays_one() -> None:
    made = tree_map(Tensor.clone, (LOGITS, [LOGITS, {"x": IDS}], 3))
    assert made[0] is made[1][0] and made[0] is not LOGITS
    assert torch.equal(made[1][1]["x"], IDS) and made[2] == 3
