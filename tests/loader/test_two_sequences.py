"""Encoders and decoders are constructed of their parts and called with two sequences; defaults stay."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from attnscope.loader import Built, construct, load_target, make_inputs
from attnscope.targets import Request, prepare
from tests.zoo import FILES


def build(name: str) -> Built:
    return construct(load_target(f"{FILES / 'translators.py'}:{name}", console_err=io.StringIO()))


def test_parts_are_made_as_the_file_makes_them() -> None:
    built = build("EncoderDecoder")
    assert built.guesses == (
        "encoder=Encoder decoder=DecoderLayer src_embed=Embedding tgt_embed=Embedding (constructor)"
    )
    assert isinstance(built.module, nn.Module) and len(built.module.encoder.layers) == 2  # type: ignore[arg-type, union-attr]


def test_ids_that_are_made_do_not_mean_padding() -> None:
    built = build("Padded")
    call = make_inputs(built)
    assert built.arguments["src_pad_idx"] == 0
    assert all(bool((value != 0).all()) for value in call.args)


@pytest.mark.parametrize(
    ("cls", "args"),
    [
        ("MultiheadAttention", ("embed_dim=16", "num_heads=2")),
        ("TransformerEncoderLayer", ("d_model=16", "nhead=2", "dim_feedforward=32")),
        (
            "Transformer",
            ("d_model=16", "nhead=2", "dim_feedforward=32", "num_encoder_layers=1", "num_decoder_layers=1"),
        ),
    ],
)
def test_pytorchs_own_layers_take_tokens_first(cls: str, args: tuple[str, ...]) -> None:
    made = prepare(Request(f"torch.nn:{cls}", args), [7, 1, 4])
    assert made.crash is None and made.call is not None and made.call.layout == "tbc"
    main = {**dict(zip(made.call.names, made.call.args, strict=True))}
    assert {tuple(x.shape) for n, x in main.items() if made.call.axes[n] == ("T", "B", "C")} == {(3, 1, 16)}


def test_a_layout_is_proved_with_two_entries_where_one_text_is_shown() -> None:
    call = make_inputs(build("Forecast"), text_tokens=[3, 4, 3], batch=1)
    assert call.layout == "tbc" and call.batch == 1
    assert isinstance(call.args[0], torch.Tensor) and call.args[0].shape == (3, 1, 24)
