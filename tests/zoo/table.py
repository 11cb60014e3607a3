"""What a row of the zoo says of its module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

# Sizes of a usual call: batch, tokens, channels, heads, head dimension.
B, T, C, H, D = 2, 7, 24, 3, 8
Made = TypeVar("Made", bound=type[nn.Module])


def rows(*shape: int) -> Tensor:
    """The usual input [B, T, C], or numbers of another shape; always the same."""
    generator = torch.Generator().manual_seed(17)
    return torch.randn(*(shape or (B, T, C)), generator=generator)


def usual(b: int, t: int, c: int, h: int) -> tuple[Tensor, ...]:
    return (rows(b, t, c),)


@dataclass(frozen=True)
class Row:
    """One module, right or broken, and what is true of it.

    `make()` is the module, called as `module(*args, **kwargs)`; `said` is what a user says of it (`causal`,
    `layout`), and `found` has code and severity of all that a check must then find. A module that takes
    sizes is made by `sized(channels, heads, context)`, and `inputs(b, t, c, h)` are arguments for it;
    `oracle(m, *inputs)` works out its weights [B, H, T, S] in one plain way, apart from how `m` does it.
    """

    make: Callable[[], nn.Module]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, str] = field(default_factory=dict)
    sized: Callable[..., nn.Module] = nn.Identity
    inputs: Callable[..., tuple[Tensor, ...]] = usual
    oracle: Callable[..., Tensor] | None = None


class Zoo(dict[str, Row]):
    """The rows of one file, by the names of their classes."""

    def __init__(self, *sizes: int) -> None:
        """`sizes` are those that each module of the file is made with."""
        super().__init__()
        self.sizes = sizes

    def row(
        self,
        *args: Any,
        name: str = "",
        make: Callable[..., nn.Module] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        found: Mapping[str, str] | None = None,
        inputs: Callable[..., tuple[Tensor, ...]] = usual,
        oracle: Callable[..., Tensor] | None = None,
        **said: Any,
    ) -> Callable[[Made], Made]:
        """Puts the class below into the table, under its own name or `name`; called with `args`."""

        def put(cls: Made) -> Made:
            def made() -> nn.Module:
                return cls(*self.sizes)

            self[name or cls.__name__] = Row(
                made, args or inputs(B, T, C, H), kwargs or {}, said, found or {}, cls, inputs, oracle
            )
            return cls

        return put


def made(row: Row) -> nn.Module:
    """The row's module, always with the same weights."""
    torch.manual_seed(5)
    return row.make()
