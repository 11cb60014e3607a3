"""One layer that differs from its equals: each kind of difference that only they show, and what is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import attnscope
from tests.zoo import styles


class Grouped(nn.Module):
    """Two query heads to each key head, in letters, with a causal mask; `late` and `fill` are faults."""

    def __init__(self, late: int = 0, fill: float = -1e9, off: bool = False) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(styles.C, styles.C), nn.Linear(styles.C, styles.C)
        self.late, self.fill, self.off = late, fill, off

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 2, 2, 6)
        k, v = self.kv(x).view(b, t, 2, 2, 6).unbind(2)
        s = torch.einsum("btkgd,bskd->bkgts", q, k) * 6**-0.5
        future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1 + self.late)
        if not self.off:
            s = s.masked_fill(future, self.fill)
        return torch.einsum("bkgts,bskd->btkgd", s.softmax(-1), v).reshape(b, t, -1)


class Stack(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def errors(model: nn.Module, *args: torch.Tensor, **options: Any) -> list[tuple[str, str]]:
    """The code and the module of each error."""
    torch.manual_seed(3)
    report = attnscope.check(model, *(args or (styles.rows(),)), **options)
    return [(one.code, one.module) for one in report.findings if one.severity == "error"]


@pytest.mark.parametrize(
    ("layer", "code"),
    [(Grouped(late=1), "AS201"), (Grouped(fill=1e-7), "AS213"), (Grouped(off=True), "AS204")],
    ids=["late", "weak", "off"],
)
def test_heads_that_share_keys_in_letters(layer: nn.Module, code: str) -> None:
    assert errors(Stack(Grouped(), layer, Grouped())) == [(code, "layers.1")]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = nn.MultiheadAttention(styles.C, styles.H, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.own(x, x, x, need_weights=False)[0]


class Decoder(Encoder):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.MultiheadAttention(styles.C, styles.H, batch_first=True)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
        x = x + self.own(x, x, x, attn_mask=mask, need_weights=False)[0]
        return x + self.other(x, memory, memory, need_weights=False)[0]


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(Encoder() for _ in range(2))
        self.decoder = nn.ModuleList(Decoder() for _ in range(2))

    def forward(self, source: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        for layer in self.encoder:
            source = layer(source)
        for layer in self.decoder:
            x = layer(x, source)
        return x


def test_an_encoder_of_torchs_own_attention_is_told_from_the_decoder() -> None:
    assert errors(Translator(), torch.randn(2, 5, styles.C), styles.rows()) == []


class Adds(nn.Module):
    """A residual that is handed a function, which calls a layer past `__call__`."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, inner: object) -> torch.Tensor:
        return x + self.drop(inner(x))  # type: ignore[operator]


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.drop = nn.Linear(styles.C, 3 * styles.C), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (styles.heads(u) for u in self.qkv(x).chunk(3, -1))
        return styles.merged(self.drop(F.scaled_dot_product_attention(q, k, v)))


class Hands(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.adds = Attends(), Adds()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.adds(x, lambda y: self.attention.forward(y))


def test_a_function_that_is_handed_over_calls_layers_in_their_mode() -> None:
    assert errors(Stack(Hands(), Hands()), causal=False) == []


class Normed(nn.Module):
    """Queries and keys are normed, and scaled by 1/√D or by what is said."""

    def __init__(self, scale: float | None = None, norm: bool = True) -> None:
        super().__init__()
        self.qkv = nn.Linear(styles.C, 3 * styles.C)
        self.norm = nn.LayerNorm(styles.D) if norm else nn.Identity()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (styles.heads(u) for u in self.qkv(x).chunk(3, -1))
        q, k = self.norm(q), self.norm(k)
        return styles.merged(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale))


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ([Normed(), Normed(), Normed(), Normed(1.0)], [("AS208", "layers.3")]),
        ([Normed(1.0), Normed(1.0), Normed(0.2), Normed(1.0)], [("AS208", "layers.2")]),
        (
            [Normed(norm=False), Normed(1 / styles.D, norm=False), *[Normed(norm=False)] * 2],
            [("AS208", "layers.1")],
        ),
        ([Normed(1.0)] * 3, []),
        ([Normed(1.0), Normed(0.2), Normed(0.4), Normed(0.8)], []),
        ([Normed(), Normed(norm=False), Normed(1.0), Normed(1 / styles.D, norm=False)], []),
    ],
    ids=["one", "other", "mup", "all one", "by depth", "two kinds"],
)
def test_a_scale_of_its_own(layers: list[nn.Module], found: list[tuple[str, str]]) -> None:
    assert errors(Stack(*layers)) == found


class Inline(nn.Module):
    """No class for a layer: lists of projections, and a loop. One layer may be unlike the others."""

    def __init__(self, fault: str = "", at: int = 2) -> None:
        super().__init__()
        self.cuts = nn.ModuleList(nn.Linear(styles.C, 3 * styles.C) for _ in range(4))
        self.fault, self.at = fault, at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, cut in enumerate(self.cuts):
            fault = self.fault if i == self.at else ""
            q, k, v = (styles.heads(u) for u in cut(x).chunk(3, -1))
            scores = (k if fault == "key" else q) @ k.mT * (1.0 if fault == "scale" else styles.D**-0.5)
            blocked = ~torch.ones_like(styles.causal(x)).tril(int(fault == "late"))
            x = x + styles.merged(scores.masked_fill(blocked, float("-inf")).softmax(-1) @ v)
        return x


@pytest.mark.parametrize(("fault", "code"), [("scale", "AS208"), ("late", "AS201"), ("key", "AS216")])
def test_a_layer_without_a_class_is_named_by_its_projections(fault: str, code: str) -> None:
    torch.manual_seed(3)
    report = attnscope.check(Inline(fault), styles.rows())
    (finding,) = (one for one in report.findings if one.severity == "error")
    assert finding.code == code
    assert "cuts.2" in f"{finding.module} {finding.message}"
    assert "cuts.1" not in str(finding)


def test_queries_that_share_a_projection_with_keys_by_design() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qk, self.v = nn.Linear(styles.C, styles.C), nn.Linear(styles.C, styles.C)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, v = styles.heads(self.qk(x)), styles.heads(self.v(x))
            return styles.merged(F.scaled_dot_product_attention(q, q, v, is_causal=True))

    assert errors(Stack(Shared(), Shared())) == []


class Late(nn.TransformerEncoderLayer):
    """A subclass whose own mask ends late; PyTorch's fused path would not ask it."""

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        late = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(2)
        return self.self_attn(x, x, x, attn_mask=late, need_weights=False)[0]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        made = nn.TransformerEncoderLayer(styles.C, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(made, 4, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
        return self.encoder(x, mask=mask)


def test_a_subclass_among_torchs_own_layers() -> None:
    model = Layers()
    assert errors(model) == []
    model.encoder.layers[2] = Late(styles.C, 4, 32, batch_first=True)
    assert errors(model) == [("AS201", "encoder.layers.2")]


class Prefixed(nn.Module):
    """Two learned keys stand before those of the tokens."""

    def __init__(self, late: int = 0) -> None:
        super().__init__()
        self.qkv, self.late = nn.Linear(styles.C, 3 * styles.C), late
        self.more = nn.Parameter(torch.randn(2, 1, styles.H, 2, styles.D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (styles.heads(u) for u in self.qkv(x).chunk(3, -1))
        k, v = (
            torch.cat([m.expand(len(x), -1, -1, -1), u], 2) for m, u in zip(self.more, (k, v), strict=True)
        )
        seen = F.pad(torch.ones_like(styles.causal(x)).tril(self.late), (2, 0), value=True)
        return styles.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=seen))


@pytest.mark.parametrize(("late", "found"), [(0, []), (1, [("AS201", "layers.1")])])
def test_equals_with_keys_before_their_tokens(late: int, found: list[tuple[str, str]]) -> None:
    assert errors(Stack(Prefixed(), Prefixed(late), Prefixed())) == found
