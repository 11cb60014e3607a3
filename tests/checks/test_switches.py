"""A bool argument of the constructor that changes the mask: the side that masks is judged, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnscope.checks.session import check_target
from attnscope.targets import Request

SOURCE = """
import torch
from torch import nn

class Example(nn.Module):
    def __init__(self, dim=16, masked=False, extra=False):
        super().__init__()
        self.qkv, self.hide = nn.Linear(dim, 3 * dim), masked

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        if self.hide:
            scores = scores.masked_fill(torch.ones(t, t, device=x.device).triu(DIAGONAL).bool(), -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
"""


@pytest.mark.parametrize(
    ("diagonal", "found", "row"),
    [
        ("1", [], "masks, and nothing was found"),
        ("2", ["each token sees 1 token after it"], "masks, with 1 fault"),
    ],
)
def test_the_side_that_masks(diagonal: str, found: list[str], row: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(SOURCE.replace("DIAGONAL", diagonal))
    report = check_target(Request(f"{tmp_path / 'example.py'}:Example"))
    assert [one.message for one in report.findings if one.severity == "error"] == found
    assert [(one.name, one.result) for one in report.tried if one.name.startswith("with ")] == [
        ("with `masked=True`", row)
    ]


AFTER = """
import torch
from torch import nn

class Example(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x, mask=None):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, 2, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        if mask is not None:
            weights = weights * mask
        return (weights @ v).transpose(1, 2).reshape(b, t, c)
"""


def test_a_mask_that_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(AFTER)
    report = check_target(Request(f"{tmp_path / 'example.py'}:Example"))
    assert [one.code for one in report.findings if one.severity == "error"] == ["AS205"]
