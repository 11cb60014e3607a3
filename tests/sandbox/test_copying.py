"""A copy computes with its own parts, also in functions that the module keeps over them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from attnscope import check
from attnscope.sandbox.copying import deep_copy, kept_outside


class Kept(nn.Module):
    def __init__(self, listed: bool = False) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"up": nn.Linear(24, 96), "down": nn.Linear(96, 24)})
        m = self.mlp

        def inner(x: Any) -> Any:
            return m["up"](x).relu()

        self.mlpf: Any = lambda x: m["down"](inner(x))
        if listed:
            self.mlpf = [self.mlpf]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        function = self.mlpf[0] if isinstance(self.mlpf, list) else self.mlpf
        result: torch.Tensor = x + function(torch.softmax(x @ x.mT / 24**0.5, -1).tril() @ x)
        return result


def test_a_kept_lambda_is_made_anew() -> None:
    module = Kept()
    copy: Any = deep_copy(module)
    x = torch.randn(2, 3, 24)
    assert torch.equal(copy(x), module(x))
    copy.mlp["down"].weight.data.zero_()
    copy.mlp["down"].bias.data.zero_()
    assert torch.equal(copy(x), x) and not torch.equal(module(x), x)
    assert kept_outside(module) is None


def test_where_a_copy_shares_its_parts_a_move_is_not_tried() -> None:
    report = check(Kept(listed=True), torch.randn(2, 7, 24))
    assert "AS119" not in {finding.code for finding in report.findings}
    (row,) = [row for row in report.tried if row.name == "move to another device"]
    assert row.result == "not tried: in a copy, `mlpf` still calls the layers of the original"
    assert not report.complete


def test_nothing_is_said_of_a_kept_lambda() -> None:
    report = check(Kept(), torch.randn(2, 7, 24))
    assert not {"AS119", "AS216"} & {finding.code for finding in report.findings}
    assert [row.held for row in report.tried if row.name == "move to another device"] == [True]
