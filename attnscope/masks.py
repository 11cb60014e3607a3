"""Masks: which query may attend to which key, and the line of torch that says the same.

Query i of a mask stands at position `offset + i` among the keys. With as many queries as keys the offset is
0; with fewer (a KV cache: the last 2 of 6 tokens) the queries are by default the last ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.errors import UsageError
from attnscope.schema import Mask
from attnscope.text import unknown

MAX_LENGTH = 16_384
"""The longest mask that is built: 16,384 × 16,384 booleans are 256 MiB."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that a mask is built from; `window` and `prefix` are 0 for the kinds without them."""

    queries: int
    keys: int
    offset: int
    window: int
    prefix: int

    @property
    def query_positions(self) -> NDArray[np.int32]:
        """[queries, 1]: the position of each query among the keys."""
        return np.arange(self.offset, self.offset + self.queries, dtype=np.int32)[:, None]

    @property
    def key_positions(self) -> NDArray[np.int32]:
        """[keys]"""
        return np.arange(self.keys, dtype=np.int32)

    @property
    def ones(self) -> str:
        """The torch expression of a mask in which everything is True."""
        return f"torch.ones({self.queries}, {self.keys}, dtype=torch.bool)"


Built = tuple[NDArray[np.bool_], str, str]
"""The mask (True = may attend), and the torch expressions of it and of its opposite."""


def _causal(sizes: Sizes) -> Built:
    allowed = sizes.key_positions <= sizes.query_positions
    return allowed, f"{sizes.ones}.tril({_diagonal(sizes.offset)})", f"{sizes.ones}.triu({sizes.offset + 1})"


def _full(sizes: Sizes) -> Built:
    allowed = np.ones((sizes.queries, sizes.keys), dtype=np.bool_)
    return allowed, sizes.ones, sizes.ones.replace("ones", "zeros")


def _sliding(sizes: Sizes) -> Built:
    # A window of w keys ends with the query's own: (p - w, p].
    allowed = sizes.key_positions <= sizes.query_positions
    allowed &= sizes.key_positions > sizes.query_positions - sizes.window
    oldest = sizes.offset - sizes.window + 1
    band = f"{sizes.ones}.tril({_diagonal(sizes.offset)}).triu({_diagonal(oldest)})"
    return allowed, band, f"~{band}"


def _prefix(sizes: Sizes) -> Built:
    allowed = sizes.key_positions <= sizes.query_positions
    allowed |= sizes.key_positions < sizes.prefix
    keys = f"torch.arange({sizes.keys})"
    return (
        allowed,
        f"{sizes.ones}.tril({_diagonal(sizes.offset)}) | ({keys} < {sizes.prefix})",
        f"{sizes.ones}.triu({sizes.offset + 1}) & ({keys} >= {sizes.prefix})",
    )


def _diagonal(diagonal: int) -> str:
    """The argument of `tril` and `triu`; the main diagonal needs none."""
    return str(diagonal) if diagonal else ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of mask: what it means, how it is built, and which sizes it has a use for."""

    title: str
    build: Callable[[Sizes], Built]
    uses: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "causal": Kind("each token sees itself and what came before", _causal, ("offset",)),
    "full": Kind("each token sees every token", _full),
    "sliding": Kind(
        "each token sees the last `window` tokens, its own included", _sliding, ("offset", "window")
    ),
    "prefix": Kind("all see the first `prefix` tokens, else causal", _prefix, ("offset", "prefix")),
}


def build(
    kind: str,
    length: int,
    *,
    window: int | None = None,
    prefix: int | None = None,
    queries: int | None = None,
    offset: int | None = None,
) -> Mask:
    """The mask [queries, length] of one kind (a key of `KINDS`), True = may attend.

    `length` is the number of keys, `queries` the number of queries (default: as many), `offset` the position
    of the first query (default: `length - queries`). `window` counts the query's own key. `Mask.torch_lines`
    has an expression of torch for each convention: `allowed` (True = may attend, what
    `F.scaled_dot_product_attention` takes), `blocked` (True = may not, what `masked_fill` takes) and
    `additive` (0 or -inf, added to the scores).

    Raises UsageError for an unknown kind, a size that is missing, out of range, or of no use to the kind.
    """
    if kind not in KINDS:
        raise unknown("kind of mask", str(kind), KINDS)
    keys = _whole("--len", length, 1, MAX_LENGTH)
    rows = keys if queries is None else _whole("--queries", queries, 1, keys)
    given = {"window": window, "prefix": prefix, "offset": offset}
    uses = KINDS[kind].uses
    for name, value in given.items():
        if value is not None and name not in uses:
            fitting = " or ".join(other for other, known in KINDS.items() if name in known.uses)
            raise UsageError(
                f"a {kind} mask has no use for --{name}", f"leave it out, or take --kind {fitting}"
            )
    for name, example in (("window", min(3, keys)), ("prefix", min(3, keys))):
        if name in uses and given[name] is None:
            raise UsageError(f"a {kind} mask needs --{name}", f"for example --{name} {example}")
    sizes = Sizes(
        queries=rows,
        keys=keys,
        offset=keys - rows if offset is None else _whole("--offset", offset, 0, keys - rows),
        window=0 if window is None else _whole("--window", window, 1, MAX_LENGTH),
        prefix=0 if prefix is None else _whole("--prefix", prefix, 1, keys),
    )
    allowed, allowed_line, blocked_line = KINDS[kind].build(sizes)
    parameters = {"length": keys, "queries": rows}
    parameters.update({name: getattr(sizes, name) for name in uses})
    shape = f"{sizes.queries}, {sizes.keys}"
    return Mask(
        kind=kind,
        allowed=allowed,
        parameters=parameters,
        torch_lines={
            "allowed": allowed_line,
            "blocked": blocked_line,
            "additive": _additive(kind, shape, blocked_line),
        },
    )


def _additive(kind: str, shape: str, blocked_line: str) -> str:
    if kind == "full":
        return f"torch.zeros({shape})"
    return f'torch.zeros({shape}).masked_fill({blocked_line}, float("-inf"))'


def _whole(option: str, value: Any, lowest: int, highest: int) -> int:
    """`value` as an int within the bounds, both inclusive."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{option} must be a whole number, not {type(value).__name__}") from None
    if not lowest <= number <= highest:
        bounds = f"{option} from {lowest} to {highest}" if lowest < highest else f"only {lowest}"
        raise UsageError(f"{option} {number} is out of range", f"{bounds} would work")
    return number
