"""The number of tokens, the width and the layout that a module itself says, where ours do not run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from attnscope.api import trace_target
from attnscope.loader import CallInputs, construct, load_target, make_inputs
from attnscope.schema import Token
from attnscope.targets import Request

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n"
ATTEND = "F.scaled_dot_product_attention(x, x, x)"

TABLE = f"""
class Fixed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(10, dim))

    def forward(self, x):
        x = x + self.rows
        return {ATTEND}
"""
STRIDED = f"""
class Strided(nn.Module):
    def __init__(self, mels, n_ctx, dim):
        super().__init__()
        self.conv = nn.Conv1d(mels, dim, 3, stride=2, padding=1)
        self.n_ctx = n_ctx

    def forward(self, x):
        x = self.conv(x).permute(0, 2, 1)
        assert x.shape[1] == self.n_ctx
        return {ATTEND}
"""
MASK = """
class Uncut(nn.Module):
    def __init__(self, dim, block):
        super().__init__()
        self.register_buffer("mask", torch.ones(10, 10).tril())

    def forward(self, x):
        scores = (x @ x.transpose(1, 2)).masked_fill(self.mask == 0, float("-inf"))
        return scores.softmax(-1) @ x
"""
NARROW = f"""
class Points(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = nn.Linear(2, dim)

    def forward(self, inputs):
        b, n = inputs.size(0), inputs.size(1)
        x = self.embed(inputs.view(b * n, -1)).view(b, n, -1)
        return {ATTEND}
"""
SHORT = """
class Short(nn.Module):
    def __init__(self, dim, num_blocks, per_block=2):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(num_blocks * per_block, num_blocks * per_block)))

    def forward(self, x):
        b, t, c = x.size()
        scores = x @ x.transpose(1, 2) / c**0.5
        return scores.masked_fill(self.mask[:t, :t] == 0, float("-inf")).softmax(-1) @ x
"""
CROSSED = """
class Crossed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, memory):
        scores = memory @ x.transpose(1, 2) / x.shape[-1] ** 0.5
        return x + self.proj(scores.softmax(-1) @ x)
"""
SPATIAL = f"""
class Map(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)

    def forward(self, x):
        return self.inner(x)

    def inner(self, x):
        b, c, *spatial = x.shape
        x = self.norm(x.reshape(b, c, -1)).transpose(1, 2)
        return {ATTEND}
"""


def called(folder: Path, source: str, text: Sequence[int] | None = None, free: bool = True) -> CallInputs:
    file = folder / "mine.py"
    file.write_text(HEAD + source)
    name = source.split("class ")[1].split("(")[0]
    built = construct(load_target(f"{file}:{name}", console_err=io.StringIO()))
    batch = 1 if text else 2
    return make_inputs(built, batch=batch, length=len(text or [0] * 7), text_tokens=text, free_length=free)


@pytest.mark.parametrize(("source", "length"), [(TABLE, 10), (STRIDED, 32)])
def test_a_fixed_number_of_tokens_is_found(tmp_path: Path, source: str, length: int) -> None:
    call = called(tmp_path, source)
    assert call.error is None and call.length == length
    assert "for with 7 tokens it raises RuntimeError: " in call.guesses


def test_a_context_that_a_guess_made_short_is_kept_to(tmp_path: Path) -> None:
    call = called(tmp_path, SHORT)
    assert (call.error, call.layout, call.batch, call.length) == (None, "btc", 2, 4)
    assert called(tmp_path, SHORT, [1, 2, 3, 4, 5, 6]).error is not None  # so long a text was given


def test_where_an_attention_took_two_lengths_one_length_hides_no_crash(tmp_path: Path) -> None:
    call = called(tmp_path, CROSSED)
    assert call.error is not None and "must match the size" in str(call.error)


def test_a_text_is_repeated_for_it_and_a_length_that_is_said_is_kept(tmp_path: Path) -> None:
    call = called(tmp_path, TABLE, [5, 6, 7])
    assert call.error is None and tuple(call.args[0].shape) == (1, 10, 24)
    assert call.args[0][0, 3].equal(call.args[0][0, 0])
    tokens = [Token(i, 5 + i, c, c.encode()) for i, c in enumerate("abc")]
    trace = trace_target(Request(f"{tmp_path / 'mine.py'}:Fixed"), tokens=tokens)
    assert "".join(token.piece for token in trace.tokens) == "abcabcabca"
    assert trace.notes[0] == "the text is repeated to 10 tokens: with 3 the module does not run"
    assert called(tmp_path, TABLE, free=False).error is not None


def test_a_mask_that_is_not_cut_stays_a_crash(tmp_path: Path) -> None:
    assert called(tmp_path, MASK).error is not None


def test_a_literal_width_reaches_through_a_view(tmp_path: Path) -> None:
    call = called(tmp_path, NARROW)
    assert call.error is None and tuple(call.args[0].shape) == (2, 7, 2)


def test_a_layout_with_several_tokens_comes_before_one_with_one(tmp_path: Path) -> None:
    call = called(tmp_path, SPATIAL)
    assert call.error is None and call.layout != "nc"


PREPARED = """
class Late(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.table = None

    def setup(self, length):
        self.table = torch.zeros(length, 24)

    def forward(self, x):
        assert self.table is not None, "call setup first"
        return x + self.table[: x.shape[1]]
"""


def test_what_a_method_makes_first_is_a_precondition(tmp_path: Path) -> None:
    call = called(tmp_path, PREPARED)
    assert "raises AssertionError: call setup first at mine.py:15" in call.doubt
    assert "`self.table` is None until `setup(length)` is called" in call.doubt
