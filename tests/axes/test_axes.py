"""Axis names: the same module has the same names whether its sizes are all different or all equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from attnscope.schema import Step
from tests.showing import axes, run
from tests.zoo.recorded import ZOO

pytestmark = pytest.mark.usefixtures("seeded")

# B, T, H, D
DISTINCT = (2, 5, 6, 4)
COLLIDING = [
    (3, 7, 2, 8),
    (4, 4, 4, 4),
    (2, 2, 2, 2),
    (6, 6, 6, 4),
    (2, 4, 2, 4),
    (4, 2, 4, 2),
    (1, 4, 4, 4),
    (4, 1, 4, 4),
    (8, 8, 2, 4),
    (16, 16, 4, 4),
    (4, 12, 4, 2),
    (1, 1, 2, 2),
    (2, 8, 4, 2),
    (2, 5, 1, 8),
    (4, 4, 1, 4),
    (1, 1, 1, 4),
    (2, 4, 4, 1),
]
# With one head there is nothing to group, and a bare parameter [C, C / 1] projects channels to channels.
MORE_THAN_ONE_HEAD = set(
    "Grouped GroupedFiveAxes GroupedExpandSdpa GqaFlag NoBatch FoldedBySplit LoopOverHeads".split()
)
MORE_THAN_ONE_CHANNEL = {"Rope", "GroupedFiveAxes"}


def rows_of(style: str, sizes: tuple[int, int, int, int]) -> Sequence[Step]:
    b, t, h, d = sizes
    return run(ZOO[style].sized(h * d, h, t + 3).eval(), *ZOO[style].inputs(b, t, h * d, h))


def names(style: str, sizes: tuple[int, int, int, int]) -> list[Any]:
    rows = rows_of(style, sizes)
    shown = [
        (row.line, row.op, row.outputs[0].axes, row.inputs[0].axes if row.inputs else ()) for row in rows
    ]
    return list(dict.fromkeys(shown))


@pytest.mark.parametrize("style", ZOO)
def test_equal_sizes_do_not_change_a_name(style: str) -> None:
    expected = names(style, DISTINCT)
    for sizes in COLLIDING:
        if sizes[2] == 1 and style in MORE_THAN_ONE_HEAD:
            continue
        if sizes[3] == 1 and style in MORE_THAN_ONE_CHANNEL:
            continue
        assert names(style, sizes) == expected, sizes


# The axes of each style's scores, weights and output at distinct sizes.
SCORES = {
    "TokensFirst": "B T S H",
    "Folded": "B·H T S",
    "FoldedBySplit": "H·B T S",
    "TokensBatchChannels": "B·H T S",
    "SingleHead": "B T S",
    "LoopOverHeads": "B T S",
    "NoBatch": "T S",
    "GroupedFiveAxes": "B G 2 T S",
}
RESULTS = {"NoBatch": "T D", "SingleHead": "B T D", "TokensBatchChannels": "T B C"}


@pytest.mark.parametrize("style", ZOO)
def test_scores_weights_and_output_are_named(style: str) -> None:
    rows = rows_of(style, DISTINCT)
    expected = SCORES.get(style, "B H T S")
    for row in rows:
        if row.op == "softmax":
            assert axes(row.outputs[0]) == expected
            assert f"over {expected.split()[-2 if style == 'TokensFirst' else -1]} " in row.detail
    assert axes(rows[-1].outputs[0]) == RESULTS.get(style, "B T C")


def test_nothing_is_named_that_nothing_decides(load: Callable[..., Any]) -> None:
    module = load(
        """
        class Odd(nn.Module):
            def forward(self, x):
                y = torch.ones(7, 5)
                z = x.reshape(-1)
                w = z[:12].view(3, 4)
                return y @ torch.ones(5, 2), w
        """,
        "Odd",
    )()
    rows = run(module, torch.randn(2, 4, 6))
    shown = [(row.op, axes(row.outputs[0])) for row in rows]
    assert shown == [
        ("ones", "7 5"),
        ("reshape", "B·T·C"),
        ("getitem", "12"),
        ("view", "3 4"),
        ("ones", "5 2"),
        ("matmul", "7 2"),
    ]


def test_a_view_across_axes_never_keeps_their_names(load: Callable[..., Any]) -> None:
    module = load(
        """
        class Wrong(nn.Module):
            def __init__(self, d, n_head):
                super().__init__()
                self.n_head = n_head
            def forward(self, x):
                B, T, C = x.shape
                q = x.view(B, self.n_head, T, C // self.n_head)
                return q.transpose(1, 2)
        """,
        "Wrong",
    )
    rows = run(module(16, 4), torch.randn(2, 6, 16))
    assert [axes(row.outputs[0]) for row in rows] == ["B 4 6 4", "B 6 4 4"]
    assert rows[0].detail == "T 6 × C 16 → 4 × 6 × 4 (re-cut across axes)"
    # Also where the sizes happen to agree: H = T.
    rows = run(module(16, 4), torch.randn(2, 4, 16))
    assert axes(rows[0].outputs[0]).split()[0] == "B"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("x.T if x.ndim == 2 else x.mT", "B C T"),
        ("x.transpose(-1, -2)", "B C T"),
        ("x.swapaxes(0, 2)", "C T B"),
        ("x.permute(2, 0, 1)", "C B T"),
        ("torch.permute(x, (1, 2, 0))", "T C B"),
        ("x.movedim(0, -1)", "T C B"),
        ("x.unsqueeze(1)", "B 1 T C"),
        ("x.unsqueeze(-1).squeeze(-1)", "B T C"),
        ("x[:, None, ..., None]", "B 1 T C 1"),
        ("x[0]", "T C"),
        ("x[..., 0]", "B T"),
        ("x[:, -1]", "B C"),
        ("x[:, torch.tensor([1, 1, 2])]", "B 3 C"),
        ("x[x > 0].sum()", ""),
        ("x.expand(5, 2, 4, 6)", "5 B T C"),
        ("x[:, :1].expand(-1, 4, -1)", "B 4 C"),
        ("x.repeat(1, 1, 2)", "B T 12"),
        ("x.repeat_interleave(2, dim=0)", "4 T C"),
        ("x.flatten(1)", "B T·C"),
        ("torch.flatten(x, 0, 1)", "B·T C"),
        ("x.unflatten(2, (3, 2))", "B T 3 2"),
        ("x.sum(-1)", "B T"),
        ("x.mean(dim=1, keepdim=True)", "B 1 C"),
        ("x.amax((0, 2))", "T"),
        ("x.std()", ""),
        ("torch.stack([x, x])", "2 B T C"),
        ("torch.stack((x, x), dim=-1)", "B T C 2"),
        ("torch.cat([x, x], dim=-1)", "B T 2C"),
        ("torch.cat(x.chunk(2, dim=-1), dim=-1)", "B T C"),
        ("x.chunk(3, dim=-1)[0]", "B T C/3"),
        ("x.unbind(1)[0]", "B C"),
        ("x.split([2, 4], dim=-1)[1]", "B T 2"),
        ("torch.einsum('b t c -> c b t', x)", "C B T"),
        ("torch.einsum('...c->...', x)", "B T"),
        ("torch.einsum('btc,bsc->bts', x, x)", "B T S"),
        ("x @ x.mT", "B T S"),
        ("torch.matmul(x, x.transpose(1, 2))", "B T S"),
        ("torch.bmm(x, x.mT)", "B T S"),
        ("torch.baddbmm(torch.zeros(1), x, x.mT)", "B T S"),
        ("torch.where(x > 0, x, 0.0)", "B T C"),
        ("x.masked_fill(x > 0, 1.0)", "B T C"),
        ("F.pad(x, (0, 0, 1, 0))", "B 5 C"),
        ("x.roll(1, dims=1)", "B T C"),
        ("x.cumsum(1)", "B T C"),
        ("F.layer_norm(x, (6,))", "B T C"),
        ("x.to(torch.float64)", "B T C"),
        ("x.clone().contiguous()", "B T C"),
        ("torch.tril(x @ x.mT)", "B T S"),
        ("x.view_as(x)", "B T C"),
        ("x.gather(1, torch.zeros(2, 1, 6, dtype=torch.long))", "B 1 C"),
        ("x.index_select(1, torch.tensor([0, 1]))", "B 2 C"),
        ("x.topk(2, dim=-1).values", "B T 2"),
        ("x.sort(dim=1)[0]", "B T C"),
        ("torch.arange(x.size(1))", "T"),
        ("torch.ones(x.size(1), x.size(1))", "T S"),
        ("torch.zeros(x.shape)", "B T C"),
        ("torch.zeros(*x.shape[:2], 1)", "B T 1"),
        ("torch.zeros_like(x)", "B T C"),
        ("x.new_zeros(x.shape[0], 1, x.shape[2])", "B 1 C"),
    ],
)
def test_operations_carry_names(load: Callable[..., Any], call: str, expected: str) -> None:
    module = load(
        f"""
        class M(nn.Module):
            def forward(self, x):
                return {call}
        """,
        "M",
    )()
    x = torch.randn(2, 4, 6)
    rows = run(module, x)
    assert axes(rows[-1].outputs[0]) == expected
