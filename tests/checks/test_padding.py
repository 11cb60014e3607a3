"""Padding of a sequence, made for a second run: each attention over it must hide it where the target does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import attnscope
from attnscope.checks.session import check_target
from attnscope.targets import Request


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor, y: Tensor, keep: Tensor | None) -> Tensor:
        q, k, v = (
            f(u).view(*u.shape[:2], 2, 8).transpose(1, 2) for f, u in ((self.q, x), (self.k, y), (self.v, y))
        )
        scores = q @ k.transpose(-2, -1) / 8**0.5
        if keep is not None:
            scores = scores.masked_fill(~keep, -1e9)
        return x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Translator(nn.Module):
    """`way` says what becomes of the mask of the source's padding."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.src, self.tgt = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.encode, self.decode, self.look = Attention(), Attention(), Attention()
        self.out = nn.Linear(16, 20)

    def marks(self, src: Tensor) -> Tensor:
        keep = src == 1 if self.way == "inverted" else src != 1
        return keep[:, None, :, None] if self.way == "axis" else keep[:, None, None, :]

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        keep = self.marks(src)
        memory = self.src(src)
        bare = self.way in ("encoder", "unused", "pooled")
        memory = self.encode(memory, memory, None if bare else keep)
        if self.way in ("pooled", "zeroed"):
            memory = memory * keep[:, 0, 0, :, None]
        x = self.tgt(tgt)
        x = self.decode(x, x, torch.ones(tgt.shape[1], tgt.shape[1], device=tgt.device).tril().bool())
        return self.out(
            self.look(x, memory, None if self.way in ("cross", "unused", "pooled", "zeroed") else keep)
        )


WAYS = {
    "right": [],
    "cross": [("look", "padding of `src` is seen here: no mask of it is applied")],
    "encoder": [("encode", "padding of `src` is seen here: no mask of it is applied")],
    "unused": [
        ("encode", "padding of `src` is seen here: no mask of it is applied"),
    ],
    "axis": [("encode", "the mask of `src`'s padding does not reach its keys: padding is seen")],
    "inverted": [("encode", "the mask of `src`'s padding is inverted: padding alone is seen")],
    "pooled": [],
    "zeroed": [],
}


@pytest.mark.parametrize("way", WAYS)
def test_each_attention_over_a_padded_sequence(way: str) -> None:
    torch.manual_seed(0)
    length = 7 if way == "axis" else 5  # along the queries a mask fits keys of one length alone
    src, tgt = torch.randint(2, 20, (2, length)), torch.randint(2, 20, (2, 7))
    report = attnscope.check(Translator(way), src, tgt)
    assert [(one.module, one.message) for one in report.findings] == WAYS[way]
    assert {one.severity for one in report.findings} <= {"error"}


class Asking(nn.Module):
    """Masks come with the call; `way` says what the decoder makes of the one for its own keys."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.src, self.tgt = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.encode, self.decode, self.look = Attention(), Attention(), Attention()

    def forward(self, src: Tensor, tgt: Tensor, keep: Tensor, tgt_mask: Tensor) -> Tensor:
        memory, x = self.src(src), self.tgt(tgt)
        memory = self.encode(memory, memory, keep)
        x = self.decode(x, x, None if self.way == "unread" else tgt_mask)
        return self.look(x, memory, tgt_mask if self.way == "causal" else keep)


ASKED = {
    "right": [],
    "unread": [("AS201", "decode", "every token sees every later token: no mask is applied")],
    "causal": [("AS226", "look", "a causal mask lies over `src`: early queries see only its first tokens")],
}


@pytest.mark.parametrize("way", ASKED)
def test_masks_that_are_made_for_the_call(way: str, tmp_path: Path) -> None:
    lines = inspect.getsource(Attention) + inspect.getsource(Asking)
    head = "import torch\nfrom torch import Tensor, nn\n\n\n"
    made = f'\n\ndef make():\n    return Asking("{way}")\n'
    (tmp_path / "asking.py").write_text(head + lines + made)
    report = check_target(Request(f"{tmp_path / 'asking.py'}:make"))
    assert [(one.code, one.module, one.message) for one in report.findings] == ASKED[way]


class Handed(nn.Module):
    """The mask comes with the call; `both` says whether the second attention gets it, too."""

    def __init__(self, both: bool, free: bool = False) -> None:
        super().__init__()
        self.both, self.free = both, free
        self.encode, self.decode, self.look = Attention(), Attention(), Attention()

    def forward(self, src: Tensor, tgt: Tensor, keep: Tensor, memory_keep: Tensor | None = None) -> Tensor:
        memory = self.encode(src, src, keep)
        x = self.decode(tgt, tgt, torch.ones(tgt.shape[1], tgt.shape[1], device=tgt.device).tril().bool())
        return self.look(x, memory, memory_keep if self.free else keep if self.both else None)


@pytest.mark.parametrize(("both", "free", "found"), [(True, False, 0), (False, False, 1), (False, True, 0)])
def test_a_mask_that_is_handed_over_serves_every_attention_over_its_keys(
    both: bool, free: bool, found: int
) -> None:
    torch.manual_seed(0)
    keep = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    report = attnscope.check(Handed(both, free), torch.randn(2, 5, 16), torch.randn(2, 7, 16), keep)
    assert [one.module for one in report.findings if one.code == "AS221"] == ["look"] * found
    assert len(report.findings) == found
