"""Mutations of the correct styles: the same source with one thing changed.

`KILLING` change the function in a way that is a fault; `HARMLESS` do not change it at all. Each is a text and
what stands in its place; a mutant is made wherever the text occurs in a style's class or in what it inherits.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from tests.zoo import Row, made, styles

KILLING: tuple[tuple[str, str], ...] = (
    ("~causal(x)", "causal(x)"),
    ("~causal(x)", "~causal(x).roll(1, -1)"),
    ("~causal(x)", "~(causal(x) | causal(x).roll(1, 1))"),
    ("~causal(x)", "~causal(x).mT"),
    ("~causal(x)", "torch.zeros_like(causal(x))"),
    ("~causal(x)", "~torch.ones_like(causal(x)).tril(1)"),
    ("~causal(x)", "~torch.ones_like(causal(x)).tril(2)"),
    ("~causal(x)", "~torch.eye(x.shape[1], dtype=torch.bool, device=x.device)"),
    ('float("-inf"))', "0.0)"),
    ('float("-inf"))', "-1.0)"),
    ('float("-inf"))', "-1e-9)"),
    (".softmax(-1)", ".softmax(-2)"),
    (".softmax(-1)", ".softmax(1)"),
    (".softmax(dim=-1)", ".softmax(dim=1)"),
    ("dim=-1)", "dim=-2)"),
    (" / D**0.5", ""),
    (" / D**0.5", " * D**0.5"),
    (" / D**0.5", " / C**0.5"),
    (" / D**0.5", " / D**0.5 / D**0.5"),
    (" * D**-0.5", ""),
    (" * D**-0.5", " * C**-0.5"),
    (" / math.sqrt(q.size(-1))", ""),
    (" / math.sqrt(q.shape[-1])", ""),
    (" / math.sqrt(D)", " / math.sqrt(C)"),
    ("is_causal=True", "is_causal=False"),
    ("is_causal=True", "attn_mask=~causal(x)"),
    ("is_causal=True", "is_causal=True, dropout_p=0.3"),
    ("is_causal=True", "is_causal=True, scale=1.0"),
    ("merged(", "(lambda y: y.reshape(x.shape))("),
    ("self.split(x)", "(u.reshape(x.shape[0], H, x.shape[1], D) for u in (self.q(x), self.k(x), self.v(x)))"),
    ("self.split(x)", "[u.flip(0) if i else u for i, u in enumerate(Projections.split(self, x))]"),
    ("self.split(x)", "(heads(self.k(x)), heads(self.k(x)), heads(self.v(x)))"),
    ("self.split(x)", "(u.flip(2) for u in Projections.split(self, x))"),
    (".softmax(-1) @ v", ".softmax(-1).mT @ v"),
    (".softmax(-1) @ v", ".softmax(-1) * 0.5 @ v"),
    (".softmax(-1) @ v", ".softmax(-1) * causal(x).tril(-1) @ v"),
    (".softmax(-1) @ v", ".softmax(-1).detach() @ v"),
    ("self.drop(", "F.dropout("),
    ("nn.ModuleList([Head()", "list([Head()"),
    ("nn.ModuleList([Block()", "list([Block()"),
    (".repeat_interleave(2, dim=1)", ".repeat(1, 2, 1, 1)"),
    ("turn(q, start), turn(k, start)", "turn(q), turn(k)"),
    (".tril(total - t)", ".tril()"),
    (".tril(total - t)", ".tril(1 + total - t)"),
    (".tril(start_pos)", ".tril()"),
    ("is_causal=x.shape[1] > 1", "is_causal=True"),
    ("[past[0], k], 2)", "[k, past[0]], 2)"),
    ("keep[:, None, None, :]", "keep[:, None, :, None]"),
    ("~keep[", "keep["),
    (", batch_first=True", ""),
    ("self.tril[:t, :t] == 0", "self.tril[:t, :t] == 1"),
    ("self.bias[:, :, :t, :t] == 0", "self.bias[:, :, :t, :t] != 0"),
    ("scores = scores.masked_fill(", "scores.masked_fill("),
    ("self.q(x)", "self.o(x)"),
    ("v.transpose(-2, -1) @ weights.transpose(-2, -1)", "v.transpose(-2, -1) @ weights"),
    ('torch.einsum("bhqk,bkhd->bqhd"', 'torch.einsum("bhkq,bkhd->bqhd"'),
    ("return self.o(", "return nn.Linear(C, C)("),
    (".view(b, H, t, D)\n", ".view(H, b, t, D).transpose(0, 1)\n"),
    (
        "u[:, :, None].expand(b, g, self.n_heads // g, t, d)",
        "u[:, None].expand(b, self.n_heads // g, g, t, d)",
    ),
    ("view(1, 1, block, block)", "view(1, 1, block, block).mT"),
    ("torch.tril(torch.ones(context, context))", "torch.tril(torch.ones(context, context), 1)"),
    ("torch.tril(torch.ones(block, block))", "torch.tril(torch.ones(block, block), 1)"),
    (".triu(1)", ".triu(2)"),
    (".triu(1)", ".tril(-1)"),
    (", 1)\n", ", 2)\n"),
)

HARMLESS: tuple[tuple[str, str], ...] = (
    ("~causal(x)", "causal(x).logical_not()"),
    ("~causal(x)", "torch.ones_like(causal(x)).triu(1)"),
    ("~causal(x)", "(causal(x) == 0)"),
    ("~causal(x)", "~causal(x)[None, None]"),
    ("~causal(x)", "torch.where(causal(x), False, True)"),
    ('float("-inf"))', "-torch.inf)"),
    ('float("-inf"))', 'torch.tensor(float("-inf"), dtype=x.dtype, device=x.device))'),
    (".softmax(-1)", ".softmax(dim=-1)"),
    (".softmax(-1)", ".softmax(-1, dtype=x.dtype)"),
    (".softmax(-1)", ".log_softmax(-1).exp()"),
    (" / D**0.5", " * D**-0.5"),
    (" / D**0.5", " / math.sqrt(D)"),
    (" / D**0.5", " * (1.0 / D**0.5)"),
    ("q @ k.mT", "torch.einsum('bhtd,bhsd->bhts', q, k)"),
    ("q @ k.mT", "torch.matmul(q, k.transpose(-1, -2))"),
    ("q @ k.mT", "(k @ q.mT).mT"),
    ("q @ k.mT", "(q[..., None, :] * k[..., None, :, :]).sum(-1)"),
    ("is_causal=True)", "attn_mask=causal(x))"),
    ("is_causal=True)", ("attn_mask=torch.zeros_like(causal(x), "
        "dtype=x.dtype).masked_fill(~causal(x), -torch.inf))")),
    ("is_causal=True)", "is_causal=True, scale=D**-0.5)"),
    ("merged(", "(lambda y: y.permute(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1))("),
    ("merged(", "(lambda y: torch.cat([y[:, h] for h in range(y.shape[1])], -1))("),
    ("heads(self.q(x)), heads(self.k(x)), heads(self.v(x))",
     "tuple(f(x).view(*x.shape[:2], H, D).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))"),
    ("heads(self.q(x)), heads(self.k(x)), heads(self.v(x))",
     "tuple(torch.stack(f(x).split(D, -1), 1) for f in (self.q, self.k, self.v))"),
    ("self.split(x)", "tuple(u.contiguous() for u in self.split(x))"),
    (".transpose(-2, -1)", ".mT"),
    ("self.drop(", "(self.drop if self.training else nn.Identity())("),
    ("nn.ModuleList(", "nn.Sequential(*"),
    (".repeat_interleave(2, dim=1)", "[:, [0, 0, 1, 1]]"),
    ("turn(q), turn(k)", "turn(torch.cat([q, k], 1)).chunk(2, 1)"),
    ("self.bias[:, :, :t, :t] == 0", "~self.bias[:, :, :t, :t].bool()"),
    ("self.tril[:t, :t] == 0", "self.tril[:t, :t] < 0.5"),
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    style: str
    old: str
    new: str
    source: str
    turn: int = 0

    @property
    def name(self) -> str:
        return f"{self.style}: {self.old!r} → {self.new!r}" + (f" ({self.turn})" if self.turn else "")


def _is_plain(row: Row, usual: torch.Tensor) -> bool:
    return not row.said and not row.kwargs and len(row.args) == 1 and torch.equal(row.args[0], usual)


def mutants(mutations: tuple[tuple[str, str], ...]) -> Iterator[Mutant]:
    """Every mutation of every style whose own class (or what it inherits from a style) holds the text."""
    text = Path(styles.__file__).read_text(encoding="utf-8")
    usual = styles.rows()
    # Those that are called in the usual way come first: samples count on the order.
    rows = sorted(styles.ZOO.items(), key=lambda one: not _is_plain(one[1], usual))
    for style, row in rows:
        if not isinstance(row.sized, type) or row.sized is nn.Identity or style.endswith("Unsaid"):
            continue
        block = inspect.getsource(row.sized)
        block = block[block.index("class ") :]  # not the row above it
        for old, new in mutations:
            for turn in range(min(block.count(old), 2)):
                pieces = block.split(old)
                changed = old.join(pieces[: turn + 1]) + new + old.join(pieces[turn + 1 :])
                yield Mutant(style, old, new, text.replace(block, changed), turn)


def outputs(row: Row) -> object:
    """What a row's module gives in evaluation mode: its first tensor, or the exception's type."""
    module = made(row).eval()
    torch.manual_seed(6)
    try:
        with torch.no_grad():
            result = module(*row.args, **row.kwargs)
    except Exception as error:
        return type(error)
    return result[0] if isinstance(result, tuple) else result


def same(one: object, two: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return one.shape == two.shape and torch.allclose(one, two, rtol=1e-4, atol=1e-5, equal_nan=True)
    return one is two
