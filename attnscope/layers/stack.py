"""Whole models: embeddings, a built-in layer with seeded weights, and a stack of several.

The stack is the pre-norm residual stream of GPT-2 (Radford et al., 2019) without its feed-forward layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.errors import UsageError
from attnscope.layers import load
from attnscope.layers.options import DEFAULT_LAYER, Options, resolve
from attnscope.sandbox.state import global_state, seed_torch
from attnscope.text import visible


class Block(nn.Module):
    """x [B, T, C] -> [B, T, C]: normalize, attend, add to what was there."""

    def __init__(self, d_model: int, attention: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        change: Tensor = self.attention(normed)
        return x + change


class Stack(nn.Module):
    """x [B, T, C] -> [B, T, C] through `blocks.0`, `blocks.1`, …"""

    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Embeddings(nn.Module):
    """Token ids [B, T] -> [B, T, d_model]: a vector for each token plus one for each position.

    All numbers are drawn from the standard normal distribution, on generators of their own: neither the
    caller's random state nor a layer's weights depend on them, and the first rows of `position` do not depend
    on `context_length`.
    """

    def __init__(self, vocab: int, d_model: int, context_length: int, seed: int) -> None:
        super().__init__()
        self.token = _embedding(vocab, d_model, 2 * seed)
        self.position = _embedding(context_length, d_model, 2 * seed + 1)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[-1], device=ids.device)
        tokens: Tensor = self.token(ids)  # (B, T) -> (B, T, C)
        places: Tensor = self.position(positions)  # (T) -> (T, C)
        return tokens + places  # (B, T, C) + (T, C) -> (B, T, C)


def _embedding(rows: int, columns: int, seed: int) -> nn.Embedding:
    # Another stream than `torch.manual_seed(seed)`, which draws the layer's weights.
    generator = torch.Generator("cpu").manual_seed((seed * 0x9E3779B97F4A7C15 + 0x5EED) % 2**63)
    # torch draws normal numbers 16 at a time: whole groups make the first rows independent of their number.
    padded = -(-rows // 16) * 16
    table = torch.randn(padded, columns, generator=generator, dtype=torch.float32, device="cpu")
    return nn.Embedding(rows, columns, _weight=table[:rows])


def build_model(layer: str = DEFAULT_LAYER, **options: Any) -> nn.Module:
    """A built-in layer (`depth` 1) or a stack of them, with random weights, in `eval` mode.

    The options are those of `attnscope.layers.options.resolve`, which checks them. Weights depend on the
    seed and the sizes alone: they are drawn on the CPU in float32 as `torch.manual_seed(seed)` right before
    the construction would draw them, then moved and cast. The caller's random state is left as it was.

    Raises UsageError for options that do not fit and for a device that is not there.
    """
    return build(resolve(layer, **options))


def build(options: Options) -> nn.Module:
    """The model for options that are already resolved; see `build_model`."""
    device = find_device(options.device)
    make = load(options.layer)
    arguments = options.arguments()
    with _seeded(options.seed):
        if options.depth == 1:
            model = make(**arguments)
        else:
            model = Stack([Block(options.d_model, make(**arguments)) for _ in range(options.depth)])
    return model.to(device=device, dtype=getattr(torch, options.dtype)).eval()


def find_device(name: str) -> torch.device:
    """The torch device called `name`, proven to work. Raises UsageError when it does not exist here."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
    except (RuntimeError, AssertionError, NotImplementedError, ImportError, AttributeError):
        present = ["cpu"]
        if torch.cuda.is_available():
            present.append("cuda")
        if torch.backends.mps.is_available():
            present.append("mps")
        shown = visible(name if len(name) <= 60 else name[:59] + "…")
        raise UsageError(f"there is no device `{shown}` here", f"known: {', '.join(present)}") from None
    return device


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within it, modules are made on the CPU in float32 from `seed`; every default is put back after it."""
    with global_state(), torch.device("cpu"):
        torch.set_default_dtype(torch.float32)
        seed_torch(seed)
        yield
