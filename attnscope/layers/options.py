"""The options of the built-in layers: defaults, what fits together, and what an error would help with.

Knows no torch, so that `--help` can show the defaults and a wrong option is told before torch is imported.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from attnscope.errors import UsageError
from attnscope.layers import LAYERS, OWN, Layer, find
from attnscope.text import unknown

DEFAULT_LAYER = "multihead"

DEFAULTS: Mapping[str, Any] = {
    "d_model": 16,
    "num_heads": 2,
    "depth": 1,
    "context_length": 1024,
    "dropout": 0.0,
    "qkv_bias": False,
    "seed": 123,
    "dtype": "float32",
    "device": "cpu",
}
"""Small and legible, and different from one another: B 1, T 6, C 16, H 2, D 8. `d_out` follows from the
layer (see `resolve`); `num_heads` is 1 where it was not given and 2 would not divide."""

FLAGS: Mapping[str, str] = {
    "d_model": "--d-model",
    "d_out": "--d-out",
    "num_heads": "--heads",
    "depth": "--depth",
    "context_length": "--context",
    "dropout": "--dropout",
    "qkv_bias": "--qkv-bias",
    "seed": "--seed",
    "dtype": "--dtype",
    "device": "--device",
    **{name: option.flag for name, option in OWN.items()},
}
"""What each option is called on the command line."""

DTYPES = ("float32", "float64", "float16", "bfloat16")

MAX_SIZE = {
    "d_model": 65_536,
    "d_out": 65_536,
    "num_heads": 4_096,
    "depth": 1_000,
    "context_length": 16_384,
    **{name: option.highest for name, option in OWN.items()},
}
MAX_NUMBERS = 1_000_000_000
"""The most numbers that a model's parameters and masks may have: 4 GB in float32."""


@dataclass(frozen=True, slots=True)
class Options:
    """A layer and all its options, checked and complete. `d_out` or `num_heads` is None if it has none.

    `own` has the options that not every layer has, with their values.
    """

    layer: str
    d_model: int
    d_out: int | None
    num_heads: int | None
    depth: int
    context_length: int
    dropout: float
    qkv_bias: bool
    seed: int
    dtype: str
    device: str
    own: tuple[tuple[str, int], ...] = ()

    @property
    def head_dim(self) -> int:
        """D, the width of one head."""
        width = self.d_model if self.d_out is None else self.d_out
        heads = 1 if self.num_heads is None or find(self.layer).per_head else self.num_heads
        return width // heads

    @property
    def out_width(self) -> int:
        """The width of the model's output."""
        return self.head_dim * (self.num_heads or 1)

    def config(self) -> dict[str, Any]:
        """The options that this layer has, by name, in the order of `Options`; seed and layer left out."""
        info = find(self.layer).info
        common = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name in info.options and field.name != "seed"
        }
        return common | dict(self.own)

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for the constructor of the layer's class."""
        own = dict(self.own)
        return {
            name: own[option] if option in own else getattr(self, option)
            for name, option in find(self.layer).arguments.items()
        }


def resolve(
    layer: str = DEFAULT_LAYER,
    *,
    d_model: int | None = None,
    d_out: int | None = None,
    num_heads: int | None = None,
    depth: int | None = None,
    context_length: int | None = None,
    dropout: float | None = None,
    qkv_bias: bool | None = None,
    seed: int | None = None,
    dtype: str | None = None,
    device: str | None = None,
    **own: int | None,
) -> Options:
    """Complete and check the options of a layer; None stands for what was not given.

    Where it was not given, `d_out` is `d_model` for `multihead`, the share of one head (`d_model /
    num_heads`) for `stacked`, and for `causal` half of `d_model`, or all of it when `depth` > 1 asks for an
    output as wide as the input. `own` are options that only some layers have.

    Raises UsageError for an unknown layer, an option that the layer lacks, a size out of range, heads that do
    not divide, an output that does not fit a stack, an unknown dtype, or a model too large to be built.
    """
    entry = find(layer)
    common = {"d_model": d_model, "d_out": d_out, "num_heads": num_heads}
    sizes = _sizes(entry, {**common, "depth": depth, "context_length": context_length, **own})

    model_width = sizes.get("d_model", DEFAULTS["d_model"])
    levels = sizes.get("depth", DEFAULTS["depth"])
    heads = sizes.get("num_heads") if entry.takes("num_heads") else None
    if entry.takes("num_heads") and heads is None:
        heads = _default_heads(entry, model_width, sizes.get("d_out"))
    head_width = sizes.get("d_out") if entry.takes("d_out") else None
    if entry.takes("d_out") and head_width is None:
        head_width = _default_d_out(entry, model_width, heads, levels)

    options = Options(
        layer=layer,
        d_model=model_width,
        d_out=head_width,
        num_heads=heads,
        depth=levels,
        context_length=sizes.get("context_length", DEFAULTS["context_length"]),
        dropout=_probability(DEFAULTS["dropout"] if dropout is None else dropout),
        qkv_bias=bool(DEFAULTS["qkv_bias"] if qkv_bias is None else qkv_bias),
        seed=_seed(DEFAULTS["seed"] if seed is None else seed),
        dtype=_dtype(DEFAULTS["dtype"] if dtype is None else dtype),
        device=DEFAULTS["device"] if device is None else str(device),
        own=tuple((one.name, sizes.get(one.name, one.default)) for one in entry.own),
    )
    _check_heads(entry, options)
    _check_depth(options)
    _check_memory(options)
    return options


def _default_heads(entry: Layer, d_model: int, d_out: int | None) -> int:
    heads: int = DEFAULTS["num_heads"]
    split = d_model if d_out is None or entry.width == "d_model" else d_out
    return 1 if split % heads and not entry.per_head else heads


def _default_d_out(entry: Layer, d_model: int, heads: int | None, depth: int) -> int:
    if entry.per_head:
        return max(1, d_model // (heads or 1))
    if heads is None and depth == 1:
        return (d_model + 1) // 2
    return d_model


def _sizes(entry: Layer, given: Mapping[str, int | None]) -> dict[str, int]:
    """The sizes that were given, checked; those that the layer lacks are refused."""
    for option, value in given.items():
        if value is not None and not entry.takes(option):
            others = ", ".join(name for name, other in LAYERS.items() if other.takes(option))
            what = FLAGS.get(option, option)
            raise UsageError(f"the layer {entry.info.name} has no {what}", f"layers that have it: {others}")
    return {option: _size(option, value) for option, value in given.items() if value is not None}


def _size(option: str, value: Any) -> int:
    flag, highest = FLAGS[option], MAX_SIZE[option]
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{flag} must be a whole number, not {type(value).__name__}") from None
    if not 1 <= number <= highest:
        raise UsageError(f"{flag} {number} is out of range", f"{flag} from 1 to {highest} would work")
    return number


def _probability(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"--dropout must be a number, not {type(value).__name__}") from None
    if not 0.0 <= number <= 1.0:  # NaN is refused here too
        raise UsageError(f"--dropout {number:g} is out of range", "a probability from 0 to 1 would work")
    return number


def _seed(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"--seed must be a whole number, not {type(value).__name__}") from None
    if not 0 <= number < 2**63:
        raise UsageError(f"--seed {number} is out of range", "a seed from 0 to 2**63 - 1 would work")
    return number


def _dtype(name: Any) -> str:
    text = str(name).removeprefix("torch.")  # a torch.dtype says its name so
    if text not in DTYPES:
        raise unknown("dtype", text, DTYPES)
    return text


def _check_heads(entry: Layer, options: Options) -> None:
    if options.num_heads is None or entry.per_head:
        return
    width: int = getattr(options, entry.width)
    if width % options.num_heads:
        flag = FLAGS[entry.width]
        lower = max(d for d in range(1, options.num_heads + 1) if width % d == 0)
        higher = next((d for d in range(options.num_heads + 1, width + 1) if width % d == 0), lower)
        near = " or ".join(str(d) for d in sorted({lower, higher}))
        raise UsageError(
            f"--heads {options.num_heads} does not divide {flag} {width}",
            f"--heads {near} would, or {flag} {math.ceil(width / options.num_heads) * options.num_heads}",
        )


def _check_depth(options: Options) -> None:
    if options.depth == 1 or options.out_width == options.d_model:
        return
    message = (
        f"--depth {options.depth} needs an output as wide as the input, "
        f"but {options.layer} gives {options.out_width} for {options.d_model}"
    )
    heads = options.num_heads if find(options.layer).per_head else 1
    assert heads is not None  # a layer per head has heads
    if options.d_model % heads:
        raise UsageError(message, f"take --heads that divides {options.d_model}, or --depth 1")
    raise UsageError(message, f"take --d-out {options.d_model // heads}, or --depth 1")


def _check_memory(options: Options) -> None:
    entry = find(options.layer)
    copies = options.depth * ((options.num_heads or 1) if entry.per_head else 1)
    width = options.d_model if options.d_out is None else options.d_out
    numbers = copies * (4 * max(options.d_model, width) * width + options.context_length**2)
    if numbers > MAX_NUMBERS:
        masks = copies * options.context_length**2
        culprit = "--context" if 2 * masks > numbers else "--d-model"
        raise UsageError(
            f"this model would need about {numbers * 4 / 1e9:.0f} GB", f"a smaller {culprit} would work"
        )
