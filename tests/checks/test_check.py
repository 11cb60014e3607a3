"""`attnscope.check`, `assert_sound` and the command: what they take, what they leave alone, what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import attnscope
from attnscope.errors import UsageError
from tests.zoo import styles

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


class NoScale(styles.Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        scores = (q @ k.mT).masked_fill(~styles.causal(x), float("-inf"))
        return self.o(styles.merged(scores.softmax(-1) @ v))


class Doubled(styles.Projections):
    def forward(self, x):
        q, k, v = self.split(x)
        return self.o(
            styles.merged(nn.functional.scaled_dot_product_attention(q / 8**0.5, k, v, is_causal=True))
        )


def test_the_scale_is_told_with_its_formula() -> None:
    (finding,) = attnscope.check(NoScale(), styles.rows()).findings
    assert finding.code == "AS208"
    assert finding.message == "scores are 2.83 × too large: 1/√8 is missing"
    assert ("scale that was found", "1") in finding.evidence
    (finding,) = attnscope.check(Doubled(), styles.rows()).findings
    assert finding.message == "scores are scaled by 1/√8 twice: 2.83 × too small"


def test_pairs_and_rows_are_counted_exactly() -> None:
    tried = {one.name: one.result for one in attnscope.check(styles.FusedBuffer(), styles.rows()).tried}
    assert tried["future"] == "0 of 21 pairs leak (above 1e-7)"
    assert tried["past"] == "21 of 21 pairs connected"
    assert tried["batch"] == "no entry moves another"
    assert tried["heads"] == "3 maps, `n_head` is 3"


def test_the_module_is_left_as_it_was() -> None:
    module: Any = styles.CachedInside().train()
    before = {name: value.clone() for name, value in module.state_dict(keep_vars=True).items()}
    cache, torch_state = module.cache_k.clone(), torch.get_rng_state()
    attnscope.check(module, styles.rows())
    assert module.training
    assert torch.equal(module.cache_k, cache)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


def test_inputs_are_made_where_none_are_given() -> None:
    assert not attnscope.check(styles.FusedBuffer()).findings
    found = {one.code for one in attnscope.check(NoScale()).findings}
    assert found == {"AS208"}


def test_assert_sound() -> None:
    attnscope.assert_sound(styles.Flash(), styles.rows())
    with pytest.raises(AssertionError, match=r"AS208: scores are 2\.83 × too large"):
        attnscope.assert_sound(NoScale(), styles.rows())


def test_select_and_ignore() -> None:
    assert not attnscope.check(NoScale(), styles.rows(), ignore=["AS208"]).findings
    assert not attnscope.check(NoScale(), styles.rows(), select=["AS201"]).findings
    assert attnscope.check(NoScale(), styles.rows(), select=["as208"]).failed
    with pytest.raises(UsageError, match="AS999"):
        attnscope.check(NoScale(), styles.rows(), select=["AS999"])


def test_causal_says_what_is_meant() -> None:
    encoder = styles.Encoder()
    assert not attnscope.check(encoder, styles.rows(), causal=False).findings
    assert [one.severity for one in attnscope.check(encoder, styles.rows()).findings] == ["note"]
    assert attnscope.check(encoder, styles.rows(), causal=True).failed


def test_a_crash_is_a_finding() -> None:
    class Crashing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(24, 24)

        def forward(self, x):
            return self.q(x).transpose(1, 2).view(x.shape[0], -1)

    report = attnscope.check(Crashing(), styles.rows())
    assert [one.code for one in report.findings] == ["AS108"]
    assert report.failed


class Hostile(nn.Module):
    """Prints, counts its calls, refuses copies and modes, and is random."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(24, 24)

    def __deepcopy__(self, memo):
        raise RuntimeError("[bold]no copies\x1b[0m")

    def train(self, mode=True):
        raise RuntimeError("no modes")

    def forward(self, x):
        print("noise")
        return self.q(x) + torch.rand(1)


class Untrue(styles.Projections):
    """A sound module whose truth and length nobody may ask for."""

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __len__(self) -> int:
        raise RuntimeError("len")

    def forward(self, x):
        q, k, v = self.split(x)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(styles.merged(y))


def test_the_truth_of_a_module_is_not_asked_for() -> None:
    report = attnscope.check(Untrue(), styles.rows())
    assert report.findings == () and len(report.tried) > 10


class Exits(nn.Module):
    def forward(self, x):
        raise SystemExit(3)


@pytest.mark.parametrize("make", [Hostile, Exits, nn.Identity, lambda: nn.Linear(24, 24), nn.Module])
def test_nothing_of_ours_is_raised(make, capsys: pytest.CaptureFixture[str]) -> None:
    report = attnscope.check(make(), styles.rows())
    assert report.tried
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(2, 7, 24),
        torch.randn(1, 1, 24),
        pytest.param(
            torch.randn(0, 7, 24),
            marks=pytest.mark.xfail(strict=True, reason="experiments look for the largest of no numbers"),
        ),
        torch.randn(2, 7, 24) * 1e30,
    ],
)
def test_odd_inputs(x: torch.Tensor) -> None:
    assert attnscope.check(styles.FusedBuffer(), x).tried


def test_the_command(cli: Callable[..., Any]) -> None:
    done = cli(
        "check",
        f"{SAMPLES / 'as201_future.py'}:Broken",
        "--input",
        "torch.randn(2, 6, 16)",
        "--format",
        "json",
    )
    assert done.code == 1 and done.err == ""
    said = json.loads(done.out)
    assert said["schema"] == "attnscope/1" and said["command"] == "check"
    (finding,) = said["findings"]
    assert finding["code"] == "AS201" and finding["message"] == "each token sees 1 token after it"
    assert finding["span"]["line"] == 19
    assert finding["evidence"][0] == ["output \\ input", "0", "1", "2", "3", "4", "5"]


def test_the_command_on_a_sound_module_and_on_a_bad_line(cli: Callable[..., Any]) -> None:
    done = cli("check", "multihead", "--width", "80")
    assert done.code == 0 and "no fault found in multihead" in done.out
    assert "0 of 21 pairs leak" in done.out
    done = cli("check", "multihead", "--select", "AS9")
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1
