"""One wrong layer in a stack, and two faults in two layers: each is found, and named by its path."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import attnscope
from attnscope.diagnostic import Diagnostic
from tests.zoo import styles


class Sound(styles.Projections):
    """One layer; what a fault changes is one method."""

    def cut(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.split(x)

    def scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q @ k.mT / styles.D**0.5

    def blocked(self, x: torch.Tensor) -> torch.Tensor:
        return ~styles.causal(x)

    def weights(self, scores: torch.Tensor, blocked: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(blocked, float("-inf")).softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.cut(x)
        weights = self.weights(self.scores(q, k), self.blocked(x))
        return self.o(self.join(weights @ v))

    def join(self, y: torch.Tensor) -> torch.Tensor:
        return styles.merged(y)


class Ahead(Sound):
    def blocked(self, x):
        return ~torch.ones_like(styles.causal(x)).tril(1)


class Blind(Sound):
    def blocked(self, x):
        return ~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)


class Inverted(Sound):
    def blocked(self, x):
        return styles.causal(x).tril(-1)


class After(Sound):
    def weights(self, scores, blocked):
        return scores.softmax(-1).masked_fill(blocked, 0.0)


class WrongAxis(Sound):
    def weights(self, scores, blocked):
        return scores.masked_fill(blocked, float("-inf")).softmax(-2).nan_to_num()


class Unscaled(Sound):
    def scores(self, q, k):
        return q @ k.mT


class Mixed(Sound):
    def join(self, y):
        return y.reshape(y.shape[0], y.shape[2], -1)


class Weak(Sound):
    def weights(self, scores, blocked):
        return scores.masked_fill(blocked, -1.0).softmax(-1)


class Random(Sound):
    def join(self, y):
        return F.dropout(styles.merged(y), 0.1)


class HalfRows(Sound):
    def weights(self, scores, blocked):
        return super().weights(scores, blocked) * 0.5


FAULTS: dict[type[Sound], set[str]] = {
    Ahead: {"AS201"},
    Blind: {"AS202"},
    Inverted: {"AS203"},
    After: {"AS205"},
    WrongAxis: {"AS207"},
    Unscaled: {"AS208"},
    Mixed: {"AS211"},
    Weak: {"AS213", "AS201"},
    Random: {"AS214"},
    HalfRows: {"AS225"},
}


class Block(nn.Module):
    def __init__(self, attn: nn.Module) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(styles.C), attn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attn(self.norm(x))


class Model(nn.Module):
    """A stack of residual blocks."""

    def __init__(self, *layers: type[Sound]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(layer()) for layer in layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def errors(*layers: type[Sound]) -> list[Diagnostic]:
    torch.manual_seed(5)
    report = attnscope.check(Model(*layers), styles.rows())
    return [one for one in report.findings if one.severity == "error"]


def is_told(found: list[Diagnostic], fault: type[Sound], place: int) -> bool:
    """Whether one of the findings has a code of this fault and names the layer that it is in."""
    return any(one.code in FAULTS[fault] and one.module == f"blocks.{place}.attn" for one in found)


def test_a_sound_stack_is_silent() -> None:
    assert errors(*[Sound] * 4) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_one_wrong_layer_of_four(fault: type[Sound]) -> None:
    place = random.Random(fault.__name__).randrange(4)
    layers: list[type[Sound]] = [Sound] * 4
    layers[place] = fault
    found = errors(*layers)
    assert is_told(found, fault, place), [(one.code, one.message) for one in found]


# Every fault beside two others.
PAIRS = [pair for i, pair in enumerate(itertools.combinations(FAULTS, 2)) if i % 5 == 0]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_faults_in_two_layers(first: type[Sound], second: type[Sound]) -> None:
    found = errors(first, Sound, second)
    assert is_told(found, first, 0), [(one.code, one.message) for one in found]
    assert is_told(found, second, 2), [(one.code, one.message) for one in found]
