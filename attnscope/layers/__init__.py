"""The built-in attention layers, named without importing torch.

`LAYERS` is the one table: a new layer is one new file beside this one and one entry here, which also declares
the options that this layer alone has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from attnscope.schema import LayerInfo
from attnscope.text import unknown

if TYPE_CHECKING:
    from torch import nn

BOOK = "Raschka, Build a Large Language Model (From Scratch), 2024"


@dataclass(frozen=True, slots=True)
class Option:
    """A whole number that only some layers have: its name, what the command line calls it and says of it."""

    name: str
    flag: str
    metavar: str
    help: str
    default: int
    highest: int = 65_536


@dataclass(frozen=True, slots=True)
class Layer:
    """One built-in layer: what is said of it, where its class is, and how options become arguments.

    `arguments` maps each argument of the constructor to the option that gives it. `width` is the option
    whose value is the layer's output width (`per_head` layers put `num_heads` of that width side by side),
    and `num_heads` must divide it unless the layer is `per_head` or has no heads. `own` declares options of
    `info.options` that are not those of all layers.
    """

    info: LayerInfo
    target: str
    arguments: Mapping[str, str]
    width: str = "d_out"
    per_head: bool = False
    own: tuple[Option, ...] = ()

    def takes(self, option: str) -> bool:
        return option in self.info.options


_SEPARATE = (
    ("W_query.weight", "[d_out, d_in]"),
    ("W_key.weight", "[d_out, d_in]"),
    ("W_value.weight", "[d_out, d_in]"),
)
_SEPARATE_BIAS = (("W_query.bias, W_key.bias, W_value.bias", "[d_out], with --qkv-bias"),)
_BLOCKED = (("mask (buffer)", "[context, context], 1 = blocked"),)
_COMMON = ("depth", "context_length", "dropout", "qkv_bias", "seed", "dtype", "device")

LAYERS: dict[str, Layer] = {
    "causal": Layer(
        LayerInfo(
            name="causal",
            title="one causal head",
            source=f"{BOOK}, section 3.5",
            options=("d_model", "d_out", *_COMMON),
            parameters=(*_SEPARATE, *_SEPARATE_BIAS, *_BLOCKED),
            steps="x [B, T, C] → q, k, v [B, T, D] → weights [B, T, S] → context [B, T, D]",
        ),
        target="attnscope.layers.causal:CausalAttention",
        arguments={
            "d_in": "d_model",
            "d_out": "d_out",
            "context_length": "context_length",
            "dropout": "dropout",
            "qkv_bias": "qkv_bias",
        },
    ),
    "stacked": Layer(
        LayerInfo(
            name="stacked",
            title="causal heads side by side, outputs concatenated",
            source=f"{BOOK}, section 3.6.1",
            options=("d_model", "d_out", "num_heads", *_COMMON),
            parameters=tuple(
                (f"heads.N.{name}", shape) for name, shape in (*_SEPARATE, *_SEPARATE_BIAS, *_BLOCKED)
            ),
            steps="x [B, T, C] → each head: q, k, v [B, T, D], weights [B, T, S] → cat [B, T, H·D]",
        ),
        target="attnscope.layers.stacked:StackedAttention",
        arguments={
            "d_in": "d_model",
            "d_out": "d_out",
            "context_length": "context_length",
            "dropout": "dropout",
            "num_heads": "num_heads",
            "qkv_bias": "qkv_bias",
        },
        per_head=True,
    ),
    "multihead": Layer(
        LayerInfo(
            name="multihead",
            title="one projection each for q, k, v, split into heads",
            source=f"{BOOK}, section 3.6.2",
            options=("d_model", "d_out", "num_heads", *_COMMON),
            parameters=(
                *_SEPARATE,
                *_SEPARATE_BIAS,
                ("out_proj.weight", "[d_out, d_out]"),
                ("out_proj.bias", "[d_out]"),
                *_BLOCKED,
            ),
            steps="x [B, T, C] → q, k, v [B, T, H·D] → [B, H, T, D] → weights [B, H, T, S] → [B, T, C]",
        ),
        target="attnscope.layers.multihead:MultiHeadAttention",
        arguments={
            "d_in": "d_model",
            "d_out": "d_out",
            "context_length": "context_length",
            "dropout": "dropout",
            "num_heads": "num_heads",
            "qkv_bias": "qkv_bias",
        },
    ),
    "nanogpt": Layer(
        LayerInfo(
            name="nanogpt",
            title="one fused projection for q, k and v, dropout on weights and result",
            source="Karpathy, nanoGPT, model.py, CausalSelfAttention",
            options=("d_model", "num_heads", *_COMMON),
            parameters=(
                ("c_attn.weight", "[3·d_model, d_model]"),
                ("c_attn.bias", "[3·d_model], with --qkv-bias"),
                ("c_proj.weight", "[d_model, d_model]"),
                ("c_proj.bias", "[d_model], with --qkv-bias"),
                ("mask (buffer)", "[1, 1, context, context], 1 = allowed"),
            ),
            steps="x [B, T, C] → [B, T, 3C] → q, k, v [B, H, T, D] → weights [B, H, T, S] → [B, T, C]",
        ),
        target="attnscope.layers.nanogpt:CausalSelfAttention",
        arguments={
            "d_model": "d_model",
            "num_heads": "num_heads",
            "context_length": "context_length",
            "bias": "qkv_bias",
            "dropout": "dropout",
        },
        width="d_model",
    ),
}


# The options that not every layer has, by name.
OWN: dict[str, Option] = {option.name: option for layer in LAYERS.values() for option in layer.own}


def find(name: str) -> Layer:
    """The table's entry for `name`; UsageError with the nearest name when there is none."""
    if name not in LAYERS:
        raise unknown("layer", name, LAYERS)
    return LAYERS[name]


def load(name: str) -> type[nn.Module]:
    """The class of the layer called `name`. Imports torch. Raises UsageError for an unknown name."""
    module, _, attribute = find(name).target.partition(":")
    layer: type[nn.Module] = getattr(import_module(module), attribute)
    return layer
