"""What one attention shows counts for others of the same source; a module that keeps its device stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnscope


class Relative(nn.Module):
    """Without 1/√D, as in T5: only layers with a table of their own add a learned bias of distance."""

    def __init__(self, biased: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16, bias=False) for _ in range(3))
        self.table = nn.Embedding(32, 2) if biased else None

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1)
        if self.table is not None:
            place = torch.arange(t, device=x.device)
            scores = scores + self.table(place[None, :] - place[:, None] + 16).permute(2, 0, 1)
        scores = scores.masked_fill(torch.ones(t, t, device=x.device).triu(1).bool(), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class Stack(nn.Module):
    def __init__(self, *biased: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Relative(one) for one in biased])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


@pytest.mark.parametrize(("biased", "severity"), [((True, False), "note"), ((False, False), "error")])
def test_a_bias_in_one_layer_speaks_for_the_line_of_source(biased: tuple[bool, ...], severity: str) -> None:
    report = attnscope.check(Stack(*biased), torch.randn(2, 7, 16))
    assert [(one.code, one.severity) for one in report.findings] == [("AS208", severity)]


class Fused(nn.Module):
    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.qkv, self.scale = nn.Linear(16, 48), scale

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (u.view(*u.shape[:2], 2, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return x + y.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(("scales", "severity"), [((None, 1.0, None), "error"), ((1.0, 1.0, 1.0), "note")])
def test_an_explicit_one_among_scaled_layers_is_no_design(
    scales: tuple[float | None, ...], severity: str
) -> None:
    report = attnscope.check(nn.Sequential(*map(Fused, scales)), torch.randn(2, 7, 16))
    assert [(one.code, one.severity) for one in report.findings] == [("AS208", severity)]


class Store:
    """A cache as an object: each call adds its keys and values to what it holds."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []


class Cached(Relative):
    def forward(self, x: Tensor, store: Store | None = None) -> Tensor:
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        if store is not None:
            store.keys.append(k)
            store.values.append(v)
            k, v = torch.cat(store.keys, 2), torch.cat(store.values, 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)


class Keeping(nn.Module):
    """Makes a cache for each of its layers, as models do that can go on from it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Cached(False), Cached(False)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, Store())
        return x


def test_each_run_finds_a_cache_as_the_first_one_did() -> None:
    assert not attnscope.check(Keeping(), torch.randn(2, 7, 16)).findings


class Untrue(Keeping):
    def __bool__(self) -> bool:
        raise RuntimeError("a module is not asked for its truth")


def test_no_module_is_asked_for_its_truth() -> None:
    report = attnscope.check(Untrue(), torch.randn(2, 7, 16))
    assert not report.findings and report.complete


class Helper(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, dropout: nn.Module) -> Tensor:
        scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
        return dropout(scores.softmax(-1)) @ v


class HandsItsDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.helper, self.dropout = Helper(), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.helper(self.q(x), self.k(x), self.v(x), self.dropout)


def test_a_module_that_is_handed_over_is_in_the_mode_of_the_others() -> None:
    stack = nn.Sequential(HandsItsDropout(), HandsItsDropout())
    assert not attnscope.check(stack, torch.randn(2, 7, 16)).findings


class Placed(nn.Module):
    """Makes its mask where it was told to live."""

    def __init__(self, device: str | None = None) -> None:
        super().__init__()
        self.proj = nn.Linear(16, 48)
        if device is not None:
            self.place = device

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        q, k, v = (u.view(*u.shape[:2], 2, 8).transpose(1, 2) for u in self.proj(x).chunk(3, -1))
        hidden = torch.ones(t, t, device=getattr(self, "place", "cpu")).triu(1).bool()
        scores = (q @ k.mT / 8**0.5).masked_fill(hidden, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def test_a_module_that_keeps_its_device_is_not_moved() -> None:
    kept = attnscope.check(Placed("cpu"), torch.randn(2, 7, 16))
    (row,) = [one for one in kept.tried if one.name == "move to another device"]
    assert row.result == "not tried: `place` keeps the device that the module was made for"
    assert not kept.findings
    lost = attnscope.check(Placed(), torch.randn(2, 7, 16))
    assert [(one.code, one.severity) for one in lost.findings] == [("AS119", "error")]


SLOTS = """
import torch
from torch import nn

class Slots(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.slots = nn.Parameter(torch.randn(3, dim))
        self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        scores = self.slots @ self.k(x).mT / x.shape[-1] ** 0.5
        weights = scores.softmax(dim=1) + 1e-8
        return (weights / weights.sum(dim=-1, keepdim=True)) @ self.v(x)

class Apart(nn.Module):
    def forward(self, queries, keys, values):
        b, length, h, e = queries.shape
        scores = torch.einsum("blhe,bshe->bhls", queries, keys) / e**0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return torch.einsum("bhls,bshd->blhd", weights, values)
"""


def test_what_competes_for_tokens_and_is_normalised_over_keys_afterwards_is_no_fault(
    tmp_path: Path, cli: Callable[..., Any]
) -> None:
    (tmp_path / "mine.py").write_text(SLOTS)
    findings = cli("check", f"{tmp_path / 'mine.py'}:Slots", "--format", "json").json["findings"]
    assert [one["code"] for one in findings if one["severity"] == "error"] == []


def test_whose_tokens_keys_and_values_are_that_are_handed_over_apart_is_a_guess(
    tmp_path: Path, cli: Callable[..., Any]
) -> None:
    (tmp_path / "mine.py").write_text(SLOTS)
    findings = cli("check", f"{tmp_path / 'mine.py'}:Apart", "--format", "json").json["findings"]
    assert [one["severity"] for one in findings if one["code"] == "AS226"] == ["note"]
