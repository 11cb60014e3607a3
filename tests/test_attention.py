"""Attention: the weights of every style equal an independent softmax; masks and where they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from attnscope.attention import build_attention
from attnscope.pooling import pool
from attnscope.recorder.capture import Capture
from attnscope.recorder.record import record
from tests.showing import attend, run
from tests.zoo import Row
from tests.zoo.recorded import ZOO
from tests.zoo.table import rows

pytestmark = pytest.mark.usefixtures("seeded")

Load = Callable[..., Any]
SIZES = [(2, 5, 6, 4), (3, 4, 4, 4), (2, 2, 2, 2)]


@pytest.mark.parametrize("row", ZOO.values(), ids=ZOO)
def test_weights_equal_the_oracle(row: Row) -> None:
    assert row.oracle is not None
    for b, t, h, d in SIZES:
        attention = row.sized(h * d, h, t + 3).eval()
        args = row.inputs(b, t, h * d, h)
        with torch.no_grad():
            expected = row.oracle(attention, *args).numpy()
        found = attend(attention, *args)
        weights = np.concatenate([one.weights for one in found], axis=1)
        assert_allclose(weights, expected, atol=2e-6)
        for one in found:
            assert one.shape == one.weights.shape
            allowed = expected[:, 0] > 0
            assert one.mask is not None and one.mask.shape[1:] == allowed.shape[1:]
            assert np.array_equal(np.broadcast_to(one.mask, allowed.shape), allowed)
            # Exactly nothing where the mask blocks.
            assert not (one.weights * ~one.mask[:, None]).any()


@pytest.mark.parametrize("row", ZOO.values(), ids=ZOO)
def test_pooled_weights_are_those_of_the_whole(row: Row) -> None:
    b, t, h, d = 2, 8, 2, 4
    attention = row.sized(h * d, h, t + 3).eval()
    args = row.inputs(b, t, h * d, h)
    whole = attend(attention, *args)
    capture = Capture("pooled", pool=lambda weights: pool(weights, 2, 2, 3))
    recording = record(attention, args, capture=capture)
    for one, other in zip(whole, build_attention(recording), strict=True):
        assert other.shape == one.shape
        if other.pooled is None:  # keys on an axis that is not the last are kept whole
            assert_allclose(other.weights, one.weights)  # type: ignore[arg-type]
            continue
        assert other.weights is None
        expected = pool(one.weights, 2, 2, 3)
        assert_allclose(other.pooled.weights, expected.weights, atol=1e-6)
        assert_allclose(other.pooled.top_weights, expected.top_weights, atol=1e-6)


ORIGINS = {
    "NanoGPT": ("buffer", "mask"),
    "Book": ("buffer", "mask"),
    "SingleHead": ("buffer", "tril"),
    "Comprehension": ("buffer", "mask"),
    "Permuted": ("buffer", "mask"),
    "TokensFirst": ("buffer", "mask"),
    "ManualSoftmax": ("buffer", "mask"),
    "FoldedBySplit": ("buffer", "mask"),
    "SdpaMask": ("buffer", "mask"),
    "Unbound": ("made", None),
    "Folded": ("made", None),
    "Einsum": ("made", None),
    "TokensBatchChannels": ("made", None),
    "Grouped": ("made", None),
    "GroupedFiveAxes": ("made", None),
    "Rope": ("made", None),
    "Cached": ("made", None),
    "LoopOverHeads": ("made", None),
    "SdpaCausal": ("is_causal", None),
    "GroupedExpandSdpa": ("is_causal", None),
    "GqaFlag": ("is_causal", None),
    "Cross": ("none", None),
    "NoBatch": ("none", None),
    "SoftcapAlibi": ("made", None),
}


@pytest.mark.parametrize("style", ORIGINS)
def test_masks_say_where_they_came_from(style: str) -> None:
    found = attend(ZOO[style].sized(8, 2, 6).eval(), *ZOO[style].inputs(2, 4, 8, 2))
    origin = found[0].mask_origin
    assert (origin.kind, origin.name) == ORIGINS[style]
    if origin.kind == "made":
        with open(origin.file) as lines:
            line = lines.read().splitlines()[origin.line - 1]
        assert "torch.ones" in line or "torch.full" in line


def test_a_mask_given_as_an_argument(load: Load) -> None:
    text = """
    class Att(nn.Module):
        def forward(self, x, mask, extra=None):
            s = x @ x.mT
            if mask.dtype == torch.bool:
                s = s.masked_fill(~mask, -1e9)
            else:
                s = s + mask
            return s.softmax(-1) @ x
    """
    module = load(text, "Att")()
    x = torch.randn(2, 4, 6)
    keep = torch.ones(4, 4).tril().bool()
    for mask in (keep, torch.zeros(4, 4).masked_fill(~keep, float("-inf"))):
        (found,) = attend(module, x, mask=mask)
        assert (found.mask_origin.kind, found.mask_origin.name) == ("argument", "mask")
        assert np.array_equal(found.mask[0], keep.numpy())
    padding = torch.tensor([[True] * 4, [True, True, False, False]])[:, None, :]
    (found,) = attend(module, x, padding)
    assert found.mask.shape == (2, 4, 4)
    assert np.array_equal(found.mask, padding.expand(2, 4, 4).numpy())


SDPA = {
    "plain": "",
    "causal": ", is_causal=True",
    "scale": ", is_causal=True, scale=0.7",
    "positional": ", None, 0.0, True",
    "bool": ", attn_mask=torch.ones(5, 5).tril().bool()",
    "float": ", attn_mask=torch.ones(5, 5).tril().log()",
    "bias": ", attn_mask=torch.arange(5.0).expand(2, 3, 5, 5)",
}


@pytest.mark.parametrize("given", SDPA)
def test_sdpa_weights_give_the_calls_own_output(load: Load, given: str) -> None:
    text = f"""
    class Att(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v{SDPA[given]})
    """
    module = load(text, "Att")()
    q, k, v = torch.randn(3, 2, 3, 5, 4)
    (found,) = attend(module, q, k, v)
    assert_allclose(found.weights @ v.numpy(), module(q, k, v).numpy(), atol=2e-6)
    assert found.note == "" and found.source == "sdpa"
    assert run(module, q, k, v)[found.step].op == "scaled_dot_product_attention"


def test_sdpa_with_dropout_says_so(load: Load) -> None:
    text = """
    class Att(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    """
    q = torch.randn(2, 3, 5, 4)
    (found,) = attend(load(text, "Att")(), q)
    assert found.note == "dropout 0.5 was active inside the call: these are the weights before it"
    assert_allclose(found.weights, (q @ q.mT / 2).softmax(-1).numpy(), atol=1e-6)


def test_a_row_without_keys_has_no_weight_in_sdpa(load: Load) -> None:
    text = """
    class Att(nn.Module):
        def forward(self, q, mask):
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    """
    mask = torch.ones(4, 4).tril(-1).bool()
    (found,) = attend(load(text, "Att")(), torch.randn(1, 2, 4, 4), mask)
    assert not found.weights[:, :, 0].any() and found.note == ""
    assert np.array_equal(found.mask[0], mask.numpy())


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", [None, "bool", "float", "padding"])
def test_multi_head_attention(batch_first: bool, need_weights: bool, masked: str | None) -> None:
    b, t, c, h = 2, 5, 12, 3
    mha = nn.MultiheadAttention(c, h, batch_first=batch_first).eval()
    x = torch.randn(b, t, c)
    given: dict[str, Any] = {}
    if masked == "bool":
        given["attn_mask"] = torch.ones(t, t).triu(1).bool()
    elif masked == "float":
        given["attn_mask"] = torch.full((t, t), float("-inf")).triu(1)
    elif masked == "padding":
        given["key_padding_mask"] = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    y = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        expected = mha(y, y, y, need_weights=True, average_attn_weights=False, **given)[1].numpy()
    (found,) = attend(mha, y, y, y, need_weights=need_weights, **given)
    assert found.source == "mha" and found.shape == (b, h, t, t)
    assert_allclose(found.weights, expected, atol=2e-6)
    assert np.array_equal(np.broadcast_to(found.mask, (b, t, t)), expected[:, 0] > 0)


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_encoder(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 5, 12)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        plain = model(x, mask=mask, is_causal=True)
    capture = Capture("weights")
    recording = record(model, (x,), {"mask": mask, "is_causal": True}, capture=capture)
    assert_allclose(recording.result.detach().numpy(), plain.numpy(), atol=2e-6)
    found = build_attention(recording)
    assert [one.shape for one in found] == [(2, 3, 5, 5)] * 2
    assert all(np.array_equal(one.mask[0], np.tril(np.ones((5, 5), bool))) for one in found)  # type: ignore[index]


def test_sinks_are_left_out(load: Load) -> None:
    text = """
    class Att(nn.Module):
        def __init__(self):
            super().__init__()
            self.sinks = nn.Parameter(torch.ones(2))
        def forward(self, q):
            b, h, t, d = q.shape
            s = q @ q.transpose(-1, -2)
            s = s.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
            s = torch.cat([s, self.sinks.view(1, h, 1, 1).expand(b, h, t, 1)], dim=-1)
            w = s.softmax(dim=-1)
            return w[..., :-1] @ q
    """
    q = torch.randn(1, 2, 4, 3)
    (found,) = attend(load(text, "Att")(), q)
    s = (q @ q.mT).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))
    expected = torch.cat([s, torch.ones(1, 2, 4, 1)], -1).softmax(-1)[..., :-1]
    assert_allclose(found.weights, expected.numpy(), atol=1e-6)
    assert found.shape == (1, 2, 4, 4) and found.mask.shape == (1, 4, 4) and "sink" in found.note


def test_talking_heads(load: Load) -> None:
    text = """
    class Att(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        def forward(self, q):
            s = q @ q.transpose(-1, -2)
            s = self.before(s.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            w = s.softmax(dim=-1)
            w = torch.einsum("oh,bhts->bots", self.after.weight, w)
            return w @ q
    """
    module = load(text, "Att")()
    q = torch.randn(2, 3, 4, 5)
    (found,) = attend(module, q)
    with torch.no_grad():
        expected = torch.einsum("oh,bhts->bots", module.before.weight, q @ q.mT).softmax(-1)
    assert_allclose(found.weights, expected.numpy(), atol=1e-6)


NOT_ATTENTION = {
    "router": "w = F.softmax(self.gate(x), dim=-1); y = torch.einsum('bte,btc->btec', w, x).sum(2)",
    "top_experts": "w, i = self.gate(x).softmax(-1).topk(2); y = (w[..., None] * self.table[i]).sum(2)",
    "classifier": "y = torch.softmax(self.gate(x), dim=-1)",
    "log_softmax": "y = F.log_softmax(self.gate(x) @ self.gate.weight, dim=-1)",
    "loss": "y = F.cross_entropy((x @ x.mT).flatten(0, 1), torch.zeros(8, dtype=torch.long))",
    "unused": "w = (x @ x.mT).softmax(-1); y = w.sum(-1)",
    "mixture": "y = torch.softmax(self.gate.bias, -1) @ self.gate(x).mT",
    "gated": "y = F.silu(self.gate(x)) @ self.gate.weight * torch.sigmoid(x)",
}


@pytest.mark.parametrize("name", NOT_ATTENTION)
def test_other_softmaxes_are_no_attention(load: Load, name: str) -> None:
    text = f"""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(6, 5)
            self.table = nn.Parameter(torch.randn(5, 6))
        def forward(self, x):
            {NOT_ATTENTION[name]}
            return y
    """
    assert attend(load(text, "M")(), torch.randn(2, 4, 6)) == []


def test_values_are_those_of_the_moment(load: Load) -> None:
    """In-place steps after the scores, after the softmax and after the product change nothing shown."""
    text = """
    class Att(nn.Module):
        def forward(self, x):
            s = x @ x.mT
            s /= 2
            s.masked_fill_(torch.ones(4, 4).triu(1).bool(), float("-inf"))
            w = s.softmax(-1)
            s.zero_()
            y = w @ x
            w.fill_(7)
            return y
    """
    x = torch.randn(2, 4, 6)
    (found,) = attend(load(text, "Att")(), x)
    scores = x @ x.mT / 2
    masked = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf"))
    assert_allclose(found.scores[:, 0], scores.numpy(), atol=1e-6)
    assert_allclose(found.weights[:, 0], masked.softmax(-1).numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    row = ZOO["NanoGPT"]
    assert row.oracle is not None
    attention = row.sized(8, 2, 6).eval().to(dtype)
    x = rows(2, 4, 8).to(dtype)
    (found,) = attend(attention, x)
    with torch.no_grad():
        expected = row.oracle(attention, x).float().numpy()
    assert_allclose(found.weights, expected, atol={torch.float64: 1e-6}.get(dtype, 2e-2))


def test_on_the_meta_device_there_are_rows_and_no_values() -> None:
    (found,) = attend(ZOO["NanoGPT"].sized(8, 2, 6).to("meta"), torch.randn(2, 4, 8, device="meta"))
    assert found.weights is None and found.mask is None and found.shape == (2, 2, 4, 4)
