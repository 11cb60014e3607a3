"""The line that a finding names is the one to blame, not the one that consumes what it made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import attnscope


class Heads(nn.Module):
    diagonal: torch.Tensor

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(24, 72)
        self.register_buffer("diagonal", torch.eye(32).bool())  # `Buffer`
        self.norms = nn.ModuleList([nn.Softmax(dim=2)])  # `Softmaxes`

    def heads(self, x):
        b, t = x.shape[:2]
        return (u.view(b, t, 3, 8).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))

    def attend(self, q, k, v, keep):
        scores = (q @ k.mT / 8**0.5).masked_fill(~keep, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Compared(Heads):
    def forward(self, x):
        i = torch.arange(x.shape[1], device=x.device)
        far = i[:, None] - i
        keep = (far >= 0) & (far < 1)  # `Compared`
        return self.attend(*self.heads(x), keep)  # type: ignore[call-arg]


class Buffer(Heads):
    def forward(self, x):
        t = x.shape[1]
        return self.attend(*self.heads(x), self.diagonal[:t, :t])  # type: ignore[call-arg]


class Softmaxes(Heads):
    def forward(self, x):
        q, k, v = self.heads(x)
        late = torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1).bool()
        scores = (q @ k.mT / 8**0.5).masked_fill(late, float("-inf"))
        return (self.norms[0](scores) @ v).transpose(1, 2).flatten(2)


class Unmoved(Heads):
    def forward(self, x):
        b, t = x.shape[:2]
        q, k, v = (
            u.view(b, t, 3, 8)  # `Unmoved`
            for u in self.qkv(x).chunk(3, -1)
        )
        weights = (q @ k.mT / 8**0.5).softmax(-1)
        return (weights @ v).flatten(2)


class Tokens(Heads):
    def forward(self, x):
        b, t = x.shape[:2]
        q, k, v = self.qkv(x).chunk(3, 1)  # `Tokens`
        q, k, v = (u.reshape(b, t, 3, 8).transpose(1, 2) for u in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).flatten(2)


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"mha": nn.MultiheadAttention(24, 3)})  # `First`

    def forward(self, x):
        return self.parts["mha"](x, x, x)[0]


@pytest.mark.parametrize(
    ("cls", "code"),
    [
        (Compared, "AS202"),
        (Buffer, "AS202"),
        (Softmaxes, "AS207"),
        (Unmoved, "AS209"),
        (Tokens, "AS211"),
        (First, "AS212"),
    ],
)
def test_the_line_to_blame(cls: type[nn.Module], code: str) -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    truth = next(n for n, line in enumerate(lines, 1) if f"# `{cls.__name__}`" in line)
    torch.manual_seed(0)
    report = attnscope.check(cls(), torch.randn(2, 6 if code != "AS211" else 9, 24), causal=code != "AS209")
    (finding,) = (one for one in report.findings if one.severity == "error")
    assert finding.code == code and finding.span is not None
    assert finding.span.line == truth
    assert finding.labels and all(label.span.line != truth for label in finding.labels)


def twins() -> tuple[type[nn.Module], type[nn.Module]]:
    """Two classes of one name, the second with a layer that gets no gradient."""

    class Twin(Heads):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(24, 24)

        def forward(self, x):
            t = x.shape[1]
            return self.out(self.attend(*self.heads(x), x.new_ones(t, t).tril().bool()))  # type: ignore[call-arg]

    first = Twin

    class Twin(Heads):  # type: ignore[no-redef]
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(24, 24)  # the second

        def forward(self, x):
            t = x.shape[1]
            return self.attend(*self.heads(x), x.new_ones(t, t).tril().bool())  # type: ignore[call-arg]

    return first, Twin


def test_of_two_classes_of_one_name_the_right_one() -> None:
    first, second = twins()
    assert not attnscope.check(first(), torch.randn(2, 6, 24)).findings
    (finding,) = attnscope.check(second(), torch.randn(2, 6, 24)).findings
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert finding.code == "AS216" and finding.span is not None
    assert "# the second" in lines[finding.span.line - 1]


class Learned(Heads):
    """Queries and keys of a table of positions: nothing of the text is in the scores."""

    def __init__(self):
        super().__init__()
        self.qkv = None  # type: ignore[assignment]
        self.table = nn.Parameter(torch.randn(16, 24))
        self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))

    def forward(self, x):
        b, t, c = x.shape
        p = self.table[:t].expand(b, t, c)
        q, k, v = (u.view(b, t, 3, 8).transpose(1, 2) for u in (self.q(p), self.k(p), self.v(x)))
        return self.attend(q, k, v, x.new_ones(t, t).tril().bool())


class Gated(nn.Module):
    """A parameter that weighs experts is no key."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Parameter(torch.randn(24, 4)), nn.Parameter(torch.randn(4, 24))

    def forward(self, x):
        return (x @ self.gate).softmax(-1) @ self.experts


def test_queries_made_of_a_parameter_are_queries() -> None:
    x = torch.randn(2, 6, 24)
    (found,) = attnscope.trace(Learned(), x).attention
    assert found.shape == (2, 3, 6, 6) and found.mask is not None and found.mask[0, 0].sum() == 1
    assert not attnscope.check(Learned(), x).findings
    assert not attnscope.trace(Gated(), x).attention


def test_a_mask_is_made_where_it_has_queries_and_keys() -> None:
    origin = attnscope.trace(Compared(), torch.randn(2, 6, 24)).attention[0].mask_origin
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert origin.kind == "made" and origin.line is not None
    assert lines[origin.line - 1].strip() == "far = i[:, None] - i"
