"""An annotation with a dataclass says what a constructor wants, whatever its argument is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = """
from dataclasses import dataclass
from torch import nn
from torch.nn import functional as F

@dataclass
class Dims:
    n_state: int
    n_head: int

class Attention(nn.Module):
    def __init__(self, dims: Dims):
        super().__init__()
        self.dims = dims
        self.qkv = nn.Linear(self.dims.n_state, 3 * self.dims.n_state)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, self.dims.n_head, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
"""


def test_a_dataclass_is_made_of_its_fields(tmp_path: Path, cli: Callable[..., Any]) -> None:
    (tmp_path / "dims.py").write_text(SOURCE)
    body = cli("check", f"{tmp_path / 'dims.py'}:Attention", "--format", "json").json
    assert not body["findings"]
    assert "dims.n_state=24" in " ".join(body["model"]["guesses"])


PARTS = """
import torch
from torch import nn

class Window(nn.Module):
    def __init__(self, dim, window_size):
        super().__init__()
        self.window_size = window_size
        self.places = self.window_size[0] * self.window_size[1]
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        return self.proj(x)

class Graph(nn.Module):
    def __init__(self, nfeat, nclass):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size=(nfeat, nclass)))

    def forward(self, x):
        return x @ self.weight

class Nested(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.proj = nn.Linear(config.hidden_size, config.transformer["heads"])

    def forward(self, x):
        return self.proj(x)
"""


def test_a_pair_is_tried_where_a_part_of_a_number_is_asked_for(
    tmp_path: Path, cli: Callable[..., Any]
) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    body = cli("check", f"{tmp_path / 'parts.py'}:Window", "--format", "json").json
    assert not body["findings"]
    assert "window_size=(16, 16)" in " ".join(body["model"]["guesses"])


def test_a_guess_that_has_no_parts_is_not_the_fault_of_the_module(
    tmp_path: Path, cli: Callable[..., Any]
) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    result = cli("check", f"{tmp_path / 'parts.py'}:Nested")
    assert (result.code, result.out) == (2, "")
    assert "`Nested` raises TypeError: 'NoneType' object is not subscriptable at parts.py:26" in result.err
    assert "--arg config.transformer=…" in result.err


def test_sizes_without_a_known_name_are_tried_together(tmp_path: Path, cli: Callable[..., Any]) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    body = cli("check", f"{tmp_path / 'parts.py'}:Graph", "--format", "json").json
    assert not [one for one in body["findings"] if one["severity"] == "error"]
    assert "nfeat=24 nclass=24" in " ".join(body["model"]["guesses"])


COUNTS = """
import torch
from torch import nn

class Routed(nn.Module):
    def __init__(self, seg_num, factor, dim, attention_n_filters):
        super().__init__()
        self.router = nn.Parameter(torch.randn(seg_num, factor, dim))
        self.proj = nn.Linear(dim, attention_n_filters * dim)

    def forward(self, x):
        return self.proj(x) + self.router.sum()
"""


def test_a_number_of_something_and_a_size_of_a_tensor_are_whole_numbers(
    tmp_path: Path, cli: Callable[..., Any]
) -> None:
    (tmp_path / "routed.py").write_text(COUNTS)
    body = cli("trace", "hi", "--module", f"{tmp_path / 'routed.py'}:Routed", "--format", "json").json
    said = " ".join(body["model"]["guesses"])
    assert "seg_num=2 factor=2" in said and "attention_n_filters=2" in said


EDGES = """
import torch
from torch import nn

class Graph(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, data):
        assert data.shape[0] == 3, "three rows"
        return self.proj(data)
"""


def test_what_the_code_itself_asks_of_a_guessed_input_is_no_fault(
    tmp_path: Path, cli: Callable[..., Any]
) -> None:
    (tmp_path / "graph.py").write_text(EDGES)
    result = cli("check", f"{tmp_path / 'graph.py'}:Graph")
    assert (result.code, result.out) == (2, "")
    last = result.err.strip().splitlines()[-1]
    assert "AssertionError: three rows at graph.py:11, and that hangs on a guess: `data`" in last
