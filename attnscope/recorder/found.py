"""What the capture finds: products, powers on their way to a softmax, and attentions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from attnscope.recorder.tensors import tensors_in


class Seen(NamedTuple):
    """One call that returned: `refs` are the serials of the tensors that went in, in order."""

    event: int
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    frozen: tuple[Any, ...]
    named: Mapping[str, Any]
    refs: list[int]
    serials: tuple[int, ...]
    outputs: tuple[Tensor, ...]
    call: int

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that went in, in the order of `refs`."""
        return list(tensors_in((*self.args, *self.kwargs.values())))

    def argument(self, place: int, name: str) -> Any:
        return self.kwargs.get(name, self.args[place] if len(self.args) > place else None)


@dataclass
class Product:
    """A product of two activations: `event` is its index, `left` and `right` the serials that went in."""

    event: int
    left: int
    right: int
    operands: tuple[Tensor, Tensor] | None = None
    held: dict[str, Tensor] = field(default_factory=dict)
    mask_event: int | None = None
    mask_serials: tuple[int, ...] = ()


@dataclass
class Power:
    """Scores of which the exponential was taken: `held["given"]`; `dim` where they were normalised before."""

    held: dict[str, Tensor]
    dim: int | None


@dataclass
class Found:
    """One attention, as it was seen.

    `event` is the index of the softmax (or of the fused call), `used_by` of the product that its weights
    went into. Arrays are in the layout of the source; `attnscope.attention` brings them to [B, H, T, S].
    In capture mode "full" `tensors` holds detached copies: q, k, v, scores (before the mask), masked (what
    the softmax was given), weights, applied (what went into the product), context.
    """

    event: int
    call: int
    source: Literal["softmax", "sdpa", "mha"]
    product: Product | None
    input_serial: int
    serial: int
    dim: int
    shape: tuple[int, ...]
    heads: int | None = None
    used_by: int | None = None
    value_serial: int | None = None
    applied_serial: int | None = None
    weights: Any = None
    allowed: Any = None
    scores: Any = None
    pooled: Any = None
    mask_serial: int | None = None
    is_causal: bool = False
    note: str = ""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    held: dict[str, Tensor] = field(default_factory=dict)
