"""What is meant is data: each row of the severity table, and each kind of evidence, by a module with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnscope
from attnscope.checks.evidence import is_causal_triangle
from attnscope.checks.severity import ROWS, severity
from tests.zoo import styles

x = styles.rows()

# proof: without evidence, then what each kind alone makes of it.
TABLE: dict[str, tuple[str | None, dict[str, str | None]]] = {
    "open": ("note", {"said": "error", "flag": "error", "triangle": "error", "handed": "error",
             "siblings": "error", "decodes": "error", "off": None}),
    "shifted": ("error", {"said": "error", "flag": "error", "off": "note"}),
    "dropped": ("error", {"triangle": "error", "off": None}),
    "heads": ("error", {"triangle": "error", "off": "note"}),
    "other": ("note", {"said": "error", "flag": "error", "triangle": "error", "handed": "error",
              "off": None}),
    "window": ("note", {"said": "error", "flag": "error", "triangle": "note", "siblings": "note",
               "off": None}),
    "block": ("note", {"said": "error", "flag": "error", "triangle": "note", "handed": "note", "off": None}),
    "prefix": (None, {"said": "error", "flag": None, "triangle": None, "handed": None}),
    "elsewhere": ("note", {"said": "error", "flag": "error", "triangle": "error", "siblings": "error"}),
    "scale missing": ("error", {"factor": "note", "bias": None, "given bias": "note", "raw": "note"}),
    "scale wrong": ("error", {"factor": "error", "bias": "error", "raw": "note"}),
    "scale of its own": ("error", {}),
    "no effect": ("note", {"scores": "error", "guessed": "note"}),
    "never read": ("error", {}),
    "padding moves": ("note", {"scores": "error", "guessed": "note"}),
    "padding seen": (None, {"scores": "error", "others hide": "error", "thrown away": "error",
                     "siblings": None}),
    "text blocked": ("note", {"scores": "note", "guessed": "note"}),
}  # fmt: skip


def test_each_row_of_the_table() -> None:
    assert [row.proof for row in ROWS] == list(TABLE)
    for proof, (bare, alone) in TABLE.items():
        assert severity(proof, ()) == bare
        for kind, judged in alone.items():
            assert severity(proof, {kind}) == judged, (proof, kind)  # type: ignore[arg-type]
    assert all(row.reason for row in ROWS)


def test_what_the_user_says_counts_more_than_a_flag() -> None:
    assert severity("open", {"said", "off"}) == "error"
    assert severity("open", {"triangle", "off"}) is None


@pytest.mark.parametrize("proof", ["dropped", "shifted", "heads"])
def test_siblings_count_more_than_a_switch_that_is_off_in_one_layer(proof: str) -> None:
    assert severity(proof, {"siblings", "off"}) == "error" != severity(proof, {"off"})


def test_a_causal_triangle_has_two_values_that_meet_at_the_diagonal() -> None:
    n = torch.ones(6, 6)
    for yes in (n.tril(), n.triu(1), n.tril().bool(), (n * -1e9).triu(1), n.tril(-1), n.tril().mT):
        assert is_causal_triangle(yes) and is_causal_triangle(yes.numpy())
    place = torch.arange(6)
    for no in (n, n.tril(1), n.triu(-2).tril(2), (place[:, None] - place).clamp(-2, 2), n[:2, :2].tril()):
        assert not is_causal_triangle(no)


class Open(styles.Projections):
    """No mask. What shows that one is meant is in what derives from it."""

    def forward(self, x: Any, seen: Any = None) -> Any:
        q, k, v = self.split(x)
        return self.o(styles.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen)))


class Flagged(Open):
    def __init__(self, on: bool) -> None:
        super().__init__()
        self.is_causal = on


class Registered(Open):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(9, 9).tril())


class Degenerate(Open):
    """A triangle of one row, which blocks nothing."""

    def forward(self, x: Any, seen: Any = None) -> Any:
        return super().forward(x, torch.ones(1, 1, dtype=torch.bool, device=x.device).tril())


class Switch(styles.Projections):
    """An option of any name masks, and it is off: as an argument, or as an attribute."""

    table: torch.Tensor

    def __init__(self, attribute: bool) -> None:
        super().__init__()
        self.hide = False
        self.attribute = attribute
        self.register_buffer("table", torch.ones(9, 9).tril().bool())

    def forward(self, x: Any, hidden: bool = False) -> Any:
        q, k, v = self.split(x)
        s = q @ k.mT / q.size(-1) ** 0.5
        if self.hide if self.attribute else hidden:
            s = s.masked_fill(~self.table[: x.size(1), : x.size(1)], float("-inf"))
        return self.o(styles.merged(s.softmax(-1) @ v))


class Two(nn.Module):
    def __init__(self, one: nn.Module, two: nn.Module) -> None:
        super().__init__()
        self.one, self.two = one, two

    def forward(self, x: Any) -> Any:
        return x + self.two(x + self.one(x))


def said(module: nn.Module, *args: Any, **options: Any) -> dict[str, str]:
    return {one.code: one.severity for one in attnscope.check(module, *(args or (x,)), **options).findings}


@pytest.mark.parametrize(
    ("make", "judged"),
    [
        (Open, {"AS201": "note"}),
        (lambda: Flagged(True), {"AS201": "error"}),
        (lambda: Flagged(False), {}),
        (Registered, {"AS204": "error"}),
        (Degenerate, {"AS201": "error"}),
        (lambda: Switch(True), {}),
        (lambda: Switch(False), {}),
        (lambda: Two(styles.Flash(), Open()), {"AS201": "error"}),
        (lambda: Two(Open(), Open()), {"AS201": "note"}),
    ],
)
def test_evidence_of_causal_attention(make: Any, judged: dict[str, str]) -> None:
    assert said(make()) == judged


def test_a_mask_that_is_handed_in() -> None:
    class Deaf(styles.Encoder):
        def forward(self, x: Any, m: Any) -> Any:  # type: ignore[override]
            return super().forward(x)

    assert said(Deaf(), x, styles.causal(x))["AS201"] == "error"
    assert said(Deaf(), x, torch.ones(7, 7).bool())["AS201"] == "note"
    assert said(Deaf(), x, torch.ones(7, 7).bool(), causal=True)["AS201"] == "error"


class Translator(nn.Module):
    """Ids of two sequences; `how` is what the decoder's mask is: none, its own, or its caller's."""

    def __init__(self, how: str, outputs: int = 30) -> None:
        super().__init__()
        self.how = how
        self.words, self.others = nn.Embedding(30, 24), nn.Embedding(20, 24)
        self.encoder = nn.MultiheadAttention(24, 3, batch_first=True)
        self.decoder = nn.MultiheadAttention(24, 3, batch_first=True)
        self.cross = nn.MultiheadAttention(24, 3, batch_first=True)
        self.out = nn.Linear(24, outputs)

    def forward(self, ids: Any, more: Any, third: Any = None) -> Any:
        y, x = self.words(ids), self.others(more)
        mask = third if self.how == "caller" else None
        if self.how == "own":
            mask = styles.causal(y).logical_not()
        x = x + self.encoder(x, x, x, need_weights=False)[0]
        y = y + self.decoder(y, y, y, attn_mask=mask, need_weights=False)[0]
        return self.out(y + self.cross(y, x, x, need_weights=False)[0])


@pytest.mark.parametrize(
    ("how", "outputs", "judged"),
    [("own", 30, {}), ("", 30, {"AS201": "error"}), ("", 31, {"AS201": "note"}),
     ("caller", 30, {"AS201": "note"})],
)  # fmt: skip
def test_a_decoder_of_ids_is_meant_to_be_causal(how: str, outputs: int, judged: dict[str, str]) -> None:
    ids, more = torch.randint(30, (2, 6)), torch.randint(20, (2, 9))
    assert said(Translator(how, outputs), ids, more) == judged


class Unscaled(styles.Projections):
    """No factor between q·k and the softmax; `how` puts something there."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.unit = how, 1.0
        self.free = nn.Parameter(torch.tensor(1.0))
        self.table = nn.Parameter(torch.randn(styles.H, 7, 7))
        self.temperature = self.scale = self.residual_scale = 1.0
        self.use_scale = False

    def forward(self, x: Any, given: Any = None) -> Any:
        """As in T5, not scaled: without scaling."""
        q, k, v = self.split(x)
        if self.how == "queries":
            q = q * self.unit
        s = q @ k.mT
        if self.how == "unit":
            s = s * self.unit
        if self.how == "learned":
            s = s / self.free
        if self.how == "table":
            s = s + self.table
        if given is not None:
            s = s + given
        if self.how == "fixed":
            place = torch.arange(x.size(1), device=x.device)
            s = s + (place[None] - place[:, None]).to(s.dtype)
        s = s.masked_fill(~styles.causal(x), float("-inf"))
        return self.o(styles.merged(s.softmax(-1) @ v))

    def sample(self, logits: Any, temperature: float = 1.0) -> Any:
        return logits / temperature


class T5GPTNeoPAMAttention(Unscaled):
    pass


@pytest.mark.parametrize(
    ("how", "judged"),
    [
        ("", "error"),
        ("fixed", "error"),
        ("unit", "note"),
        ("queries", "note"),
        ("learned", None),
        ("table", None),
    ],
)
def test_what_stands_on_the_way_says_whether_a_scale_is_meant(how: str, judged: str | None) -> None:
    for cls in (Unscaled, T5GPTNeoPAMAttention):
        assert {k: v for k, v in said(cls(how)).items() if k == "AS208"} == (
            {"AS208": judged} if judged else {}
        )


def test_a_bias_that_is_handed_in_may_be_learned_elsewhere() -> None:
    assert said(Unscaled(""), x, torch.randn(styles.H, 7, 7))["AS208"] == "note"
    assert said(Unscaled(""), x, torch.zeros(7, 7).masked_fill(~styles.causal(x), -1e9))["AS208"] == "error"
