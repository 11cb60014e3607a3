"""Stand-ins behave as a base class, a decorator, an annotation; einops patterns mean what they should."""

from __future__ import annotations

from typing import Any, Optional

import pytest
import torch
from torch import nn

from attnscope.loader import einops_standin as e
from attnscope.loader.names import role_of
from attnscope.loader.sizes import solve
from attnscope.loader.stubs import MissingImport, Stub, attribute


def test_a_stub_as_base_decorator_and_annotation() -> None:
    model, config, wrap = (Stub(f"gone.{n}") for n in ("PreTrainedModel", "PretrainedConfig", "wrap"))

    class Settings(config):  # type: ignore[misc, valid-type]
        pass

    class Net(model):  # type: ignore[misc, valid-type]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.lin = nn.Linear(2, 2)

    @wrap
    def bare(x: Optional[model]) -> int:  # type: ignore[valid-type] # noqa: UP045
        return 1

    @wrap("name", fast=True)
    def called(x: model | None) -> int:  # type: ignore[valid-type]
        return 2

    assert (bare(None), called(None)) == (1, 2)
    assert isinstance(Net(Settings(width=3)), nn.Module) and Settings(width=3).width == 3
    assert not isinstance(3, model) and not model and list(model) == []


def test_a_stub_says_so_when_a_tensor_needs_it() -> None:
    out = Stub("gone.ops.attend")(torch.ones(2))
    with pytest.raises(MissingImport, match=r"`gone` is not installed, and `gone\.ops\.attend` is called"):
        torch.ones(2) + out
    with pytest.raises(MissingImport):
        nn.functional.linear(out, torch.ones(2, 2))
    assert issubclass(attribute("gone.SomeError"), Exception)


X = torch.arange(2 * 6 * 12.0).view(2, 6, 12)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (e.rearrange(X, "b t (h d) -> b h t d", h=3), X.view(2, 6, 3, 4).transpose(1, 2)),
        (e.rearrange(X, "b ... -> b (...)"), X.flatten(1)),
        (e.rearrange(X, "b t c -> c (t b)"), X.permute(2, 1, 0).reshape(12, 12)),
        (e.rearrange(X, "b (h w) c -> b c h w", w=3), X.view(2, 2, 3, 12).permute(0, 3, 1, 2)),
        (e.rearrange(X, "b t c -> b () t c"), X[:, None]),
        (e.repeat(X, "b t c -> (b h) t c", h=3), X.repeat_interleave(3, 0)),
        (e.repeat(X[0], "t c -> b t c", b=5), X[0].expand(5, -1, -1)),
        (e.reduce(X, "b t c -> b c", "mean"), X.mean(1)),
        (e.reduce(X, "b (t two) c -> b t c", "max", two=2), X.view(2, 3, 2, 12).amax(2)),
        (e.einsum(X, X, "b i d, b j d -> b i j"), X @ X.mT),
        (e.unpack(*e.pack([X, X[:, 0]], "b * c"), "b * c")[1], X[:, 0]),
    ],
)
def test_einops_patterns(made: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(made, expected)


def test_einops_patterns_that_do_not_fit_raise() -> None:
    for pattern in ("b t -> t b", "b t (h d) -> b h t d", "b t c -> b t", "b t c"):
        with pytest.raises(ValueError):
            e.rearrange(X, pattern)
    with pytest.raises(ValueError):
        e.rearrange(X, "b t (h d) -> b h t d", h=5)


@pytest.mark.parametrize(
    ("role", "names"),
    [
        (
            "C",
            "d d_model n_embd dim hidden_size embed_dim emb_dim width channels d_in d_out n_state",
        ),
        (
            "H",
            "h H n_head n_heads num_heads num_attention_heads heads nhead encoder_attention_heads",
        ),
        ("G", "n_kv_heads num_kv_heads num_key_value_heads n_query_groups num_kv_groups kv_heads"),
        ("D", "head_dim head_size dim_head d_k d_v d_head kv_channels"),
        (
            "T",
            "T block_size context_length max_seq_len max_position_embeddings ctx_len n_positions n_ctx",
        ),
        (
            "zero",
            "dropout p attn_pdrop resid_pdrop attention_dropout attention_probs_dropout_prob drop_path",
        ),
        ("vocab", "vocab_size n_vocab padded_vocab_size num_tokens"),
        ("layers", "n_layer num_layers num_hidden_layers depth n_blocks"),
        ("index", "layer_idx layer_id block_idx layer_index"),
        ("ffn", "intermediate_size d_ff ffn_dim mlp_dim dim_feedforward"),
        ("false", "bias qkv_bias use_bias attention_bias use_cache"),
        ("eps", "norm_eps eps rms_norm_eps layer_norm_epsilon"),
        ("theta", "rope_theta theta rope_base"),
    ],
)
def test_usual_names(role: str, names: str) -> None:
    got = {n: role_of(n) for n in names.split()}
    expected = dict.fromkeys(names.split(), role)
    expected.update({n: "true" for n in names.split() if n == "bias"})
    assert got == expected


@pytest.mark.parametrize(
    "fixed",
    [
        {},
        {"H": 8},
        {"C": 48},
        {"C": 30},
        {"D": 16},
        {"H": 4, "D": 16},
        {"G": 2},
        {"H": 8, "G": 4},
        {"C": 32, "G": 2},
    ],
)
def test_sizes_are_coherent(fixed: dict[str, int]) -> None:
    s = solve(fixed, {"G"} if "G" in fixed else ())
    assert s.C == s.H * s.D and s.H % s.G == 0 and s.context > s.T
    assert all({"C": s.C, "H": s.H, "D": s.D, "G": s.G}[k] == v for k, v in fixed.items())
    assert len({s.B, s.T, s.S, s.C, s.D}) == 5


def test_key_value_heads_differ_from_heads_and_batch() -> None:
    s = solve({}, {"G"})
    assert len({s.B, s.T, s.C, s.H, s.G, s.D, s.S, s.context}) == 8
