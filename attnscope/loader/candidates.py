"""What an argument of `forward` could be: masks in each convention, rope tables in each shape, positions …"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Frame:
    """The sizes and the seed from which arguments are made."""

    B: int
    T: int
    S: int
    C: int
    H: int
    G: int
    D: int
    vocab: int
    seed: int
    dtype: torch.dtype
    tokens: tuple[int, ...] | None = None
    head_dims: tuple[int, ...] = ()
    image: tuple[int, int, int] | None = None
    reserved: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """One possible value of an argument: how it is made, its axes, and what is said of it.

    `over` is the sequence that a mask's keys are of: `T` the main one, `S` the second.
    """

    label: str
    make: Callable[[Frame], Any]
    axes: tuple[str | None, ...] = ()
    convention: str = ""
    pattern: str = ""
    over: str = "T"


def _random(frame: Frame, shape: tuple[int, ...], salt: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(frame.seed + salt)
    return torch.randn(shape, generator=generator).to(frame.dtype)


def token_rows(frame: Frame) -> Tensor:
    """[B, T, C]: rows of normal numbers; with a text, equal tokens get equal rows."""
    if frame.tokens is None:
        return _random(frame, (frame.B, frame.T, frame.C))
    rows = [_random(frame, (frame.C,), salt=1 + token) for token in frame.tokens]
    return torch.stack(rows).expand(frame.B, -1, -1).contiguous()


def token_ids(frame: Frame) -> Tensor:
    """[B, T]: the text's ids as they are, or ids drawn below the vocabulary."""
    if frame.tokens is not None:
        return torch.tensor(frame.tokens).expand(frame.B, -1).contiguous()
    return _random_ids(frame, frame.T)


def _random_ids(frame: Frame, length: int, salt: int = 0) -> Tensor:
    """[B, length]: ids below the vocabulary, none of which means padding or another mark."""
    generator = torch.Generator().manual_seed(frame.seed + salt)
    ids = torch.randint(frame.vocab, (frame.B, length), generator=generator)
    plain = [n for n in range(min(frame.vocab, 64)) if n not in frame.reserved]
    for mark in frame.reserved if plain else ():
        ids = torch.where(ids == mark, plain[(7 * mark + 5) % len(plain)], ids)
    return ids


def _image(frame: Frame) -> Tensor:
    channels, height, width = frame.image or (frame.C, 4, 5)
    return _random(frame, (frame.B, channels, height, width))


MAIN: dict[str, Candidate] = {
    "btc": Candidate("[B, T, C]", token_rows, ("B", "T", "C")),
    "tbc": Candidate("[T, B, C]", lambda f: token_rows(f).transpose(0, 1).contiguous(), ("T", "B", "C")),
    "nc": Candidate("[T, C]", lambda f: token_rows(f)[0], ("T", "C")),
    "ids": Candidate("[B, T] token ids", token_ids, ("B", "T")),
    "tb": Candidate("[T, B] token ids", lambda f: token_ids(f).t().contiguous(), ("T", "B")),
    "heads": Candidate("[B, H, T, D]", lambda f: _random(f, (f.B, f.H, f.T, f.D)), ("B", "H", "T", "D")),
    "bthd": Candidate("[B, T, H, D]", lambda f: _random(f, (f.B, f.T, f.H, f.D)), ("B", "T", "H", "D")),
    "bct": Candidate("[B, C, T]", lambda f: _random(f, (f.B, f.C, f.T)), ("B", "C", "T")),
    "image": Candidate("[B, C, h, w]", _image, ("B", "C", None, None)),
    "bhwc": Candidate("[B, 4, 5, C]", lambda f: _random(f, (f.B, 4, 5, f.C)), ("B", None, None, "C")),
    "id": Candidate("[T] token ids", lambda f: token_ids(f)[0], ("T",)),
}
SECOND: dict[str, Candidate] = {
    "bsc": Candidate("[B, S, C]", lambda f: _random(f, (f.B, f.S, f.C), 7), ("B", "S", "C")),
    "sbc": Candidate("[S, B, C]", lambda f: _random(f, (f.S, f.B, f.C), 7), ("S", "B", "C")),
    "bs": Candidate("[B, S] token ids", lambda f: _random_ids(f, f.S, 7), ("B", "S")),
    "sb": Candidate("[S, B] token ids", lambda f: _random_ids(f, f.S, 7).t().contiguous(), ("S", "B")),
    "bt": Candidate("[B, T] token ids", lambda f: _random_ids(f, f.T, 7), ("B", "T")),
}
IDS = (*(MAIN[name] for name in ("ids", "tb", "id")), *(SECOND[name] for name in ("bs", "sb", "bt")))
_TURNED = (("btc", "tbc"), ("ids", "tb"), ("bsc", "sbc"), ("bs", "sb"))


def turned(candidate: Candidate) -> Candidate:
    """The same sequence with tokens before batch, or the other way round."""
    known = {**MAIN, **SECOND}
    for pair in _TURNED:
        for this, that in (pair, pair[::-1]):
            if candidate is known[this]:
                return known[that]
    return candidate


def as_ids(candidate: Candidate) -> Candidate:
    """Token ids of the length and the order of axes that a sequence of rows has."""
    known = {**MAIN, **SECOND}
    for rows, ids in (("btc", "ids"), ("tbc", "tb"), ("nc", "id"), ("bsc", "bs"), ("sbc", "sb")):
        if candidate is known[rows]:
            return known[ids]
    return candidate if "C" not in candidate.axes else SECOND["bt"]


_SHAPES: dict[str, tuple[str | None, ...]] = {
    "T,K": ("T", "S"),
    "1,1,T,K": (None, None, "T", "S"),
    "B,1,T,K": ("B", None, "T", "S"),
    "1,T,K": (None, "T", "S"),
    "B,T,K": ("B", "T", "S"),
    "B,H,T,K": ("B", "H", "T", "S"),
    "BH,T,K": (None, "T", "S"),
    "H,T,K": ("H", "T", "S"),
    "T,K,1": ("T", "S", None),
}
_PADDING: dict[str, tuple[str | None, ...]] = {
    "B,K": ("B", "S"),
    "B,1,1,K": ("B", None, None, "S"),
    "B,1,K": ("B", None, "S"),
}
_WITHIN: dict[str, tuple[str | None, ...]] = {
    "K,K": (None, "S"),
    "B,1,K,K": ("B", None, None, "S"),
    "B,K,K": ("B", None, "S"),
}
_SAYS = {
    "allowed": "bool, True = may attend",
    "blocked": "bool, True = blocked",
    "additive": "float, added: 0 = may attend, -inf = blocked",
    "ones": "float, 1 = may attend",
    "int": "int, 1 = may attend",
    "int_blocked": "int, 1 = blocked",
}
_ORDER = {
    "allowed": ("allowed", "ones", "int", "blocked", "additive", "int_blocked"),
    "blocked": ("blocked", "additive", "int_blocked", "allowed", "ones", "int"),
    "additive": ("additive", "allowed", "blocked", "ones", "int"),
    None: ("allowed", "blocked", "additive", "ones", "int"),
}


def convert(allowed: Tensor, convention: str, dtype: torch.dtype) -> Tensor:
    """A mask (True = may attend) in one of the conventions that modules use."""
    match convention:
        case "allowed":
            return allowed
        case "blocked":
            return ~allowed
        case "ones":
            return allowed.to(dtype)
        case "int":
            return allowed.long()
        case "int_blocked":
            return (~allowed).long()
        case _:
            return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, float("-inf"))


def allowed_pattern(frame: Frame, shape: str, pattern: str, keys: int) -> Tensor:
    """True = may attend: `causal`, `all`, or `first` (key 0 is blocked), in one of the mask shapes."""
    sizes = {"B": frame.B, "H": frame.H, "T": frame.T, "K": keys, "1": 1, "BH": frame.B * frame.H}
    dims = [sizes[part] for part in shape.split(",")]
    full = torch.ones(dims, dtype=torch.bool)
    if pattern == "causal" and "T" in shape:
        if shape.endswith(",1"):
            return full[..., 0].tril(keys - frame.T)[..., None]
        return full.tril(keys - frame.T)
    if pattern == "first":
        full.select(-2 if shape.endswith(",1") else -1, 0).fill_(False)
    return full


def masks(
    frame: Frame, prior: str | None, *, padding: bool, keys: int, pattern: str, over: str = "T"
) -> Iterator[Candidate]:
    """Masks in each shape and convention, those that the source suggests first.

    A mask `over` a second sequence is first one for each of its keys, as an encoder takes it.
    """
    groups: tuple[dict[str, tuple[str | None, ...]], ...]
    groups = (_PADDING, _SHAPES) if padding else (_SHAPES, _PADDING)
    if over == "S":
        four = {shape: axes for shape, axes in _PADDING.items() if shape != "B,K" or padding}
        groups = (four, _PADDING, _WITHIN, _SHAPES)
    likely, *others = _ORDER.get(prior, _ORDER[None])
    for shapes in groups:  # which shape fits hardly depends on the convention
        for shape, axes in shapes.items():
            yield mask(shape, likely, axes, keys, pattern, over)
    for shapes in groups:
        for convention in others:
            for shape, axes in shapes.items():
                yield mask(shape, convention, axes, keys, pattern, over)


def mask(
    shape: str, convention: str, axes: tuple[str | None, ...], keys: int, pattern: str, over: str = "T"
) -> Candidate:
    """One mask: `1,1,T,K`, `allowed`."""

    def make(frame: Frame) -> Tensor:
        return convert(allowed_pattern(frame, shape, pattern, keys), convention, frame.dtype)

    shown = shape.replace("BH", "B·H").replace("K", "S" if "T" not in shape else "T").replace(",", ", ")
    if over == "S":
        shown = shape.replace("K", "S").replace(",", ", ")
    return Candidate(f"[{shown}] {_SAYS[convention]}", make, axes, convention, f"{shape}|{pattern}", over)


def block_mask() -> Candidate:
    """A causal `BlockMask` for flex attention."""

    def make(frame: Frame) -> Any:
        from torch.nn.attention.flex_attention import create_block_mask

        def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
            return q >= k

        return create_block_mask(causal, None, None, frame.T, frame.T, device="cpu")

    return Candidate("causal BlockMask", make, ("T", "S"), "allowed", "")


def repattern(candidate: Candidate, pattern: str, keys: int) -> Candidate:
    """The same mask with another pattern of allowed keys."""
    shape = candidate.pattern.partition("|")[0]
    if not shape:
        return candidate
    return mask(shape, candidate.convention, candidate.axes, keys, pattern, candidate.over)


def constant(label: str, value: Any) -> Candidate:
    """A value that does not depend on sizes."""
    return Candidate(label, lambda f: value)


NONE = constant("None", None)


def positions() -> list[Candidate]:
    """0 … T−1 as [T], [1, T], [B, T], or 0."""
    return [
        Candidate("[T] 0 … T−1", lambda f: torch.arange(f.T), ("T",)),
        Candidate("[B, T] 0 … T−1", lambda f: torch.arange(f.T).expand(f.B, -1).contiguous(), ("B", "T")),
        Candidate("[1, T] 0 … T−1", lambda f: torch.arange(f.T)[None], (None, "T")),
        constant("0", 0),
    ]


def counts(second: bool) -> list[Candidate]:
    """How many tokens each entry has: all of the second sequence, or of the main one; one number for all."""
    full = [
        Candidate("[B] S each", lambda f: torch.full((f.B,), f.S), ("B",)),
        Candidate("[B] T each", lambda f: torch.full((f.B,), f.T), ("B",)),
    ]
    return [*(full if second else full[::-1]), Candidate("T", lambda f: f.T), NONE]


def caches() -> list[Candidate]:
    """None, an empty dict, empty keys and values, keys and values with room for T tokens."""

    def pair(label: str, *shape: str) -> Candidate:
        def make(f: Frame) -> Any:
            sizes = {"B": f.B, "G": f.G, "T": f.T, "0": 0, "D": f.D}
            return tuple(torch.zeros([sizes[s] for s in shape], dtype=f.dtype) for _ in "kv")

        return Candidate(label, make)

    return [
        NONE,
        Candidate("{}", lambda f: {}),
        Candidate("(None, None)", lambda f: (None, None)),
        pair("empty (k, v)", "B", "G", "0", "D"),
        pair("(k, v) zeros [B, T, G, D]", "B", "T", "G", "D"),
        pair("(k, v) zeros [B, G, T, D]", "B", "G", "T", "D"),
    ]


def biases() -> list[Candidate]:
    """A bias that is added to the scores: None, or zeros in the shapes that are used for it."""

    def zeros(label: str, *shape: str) -> Candidate:
        def make(f: Frame) -> Tensor:
            sizes = {"B": f.B, "H": f.H, "T": f.T, "1": 1, "BH": f.B * f.H}
            return torch.zeros([sizes[s] for s in shape], dtype=f.dtype)

        return Candidate(label, make)

    return [
        NONE,
        zeros("zeros [B·H, 1, T]", "BH", "1", "T"),
        zeros("zeros [B, H, 1, T]", "B", "H", "1", "T"),
        zeros("zeros [1, H, T, T]", "1", "H", "T", "T"),
        zeros("zeros [H, 1, T]", "H", "1", "T"),
        zeros("zeros [H, T, T]", "H", "T", "T"),
        zeros("zeros [T, T]", "T", "T"),
    ]


def second() -> list[Candidate]:
    """A second sequence of another length, or one vector for each batch entry."""
    return [
        SECOND["bsc"],
        Candidate("[B, C]", lambda f: _random(f, (f.B, f.C), 7), ("B", "C")),
        Candidate("[B, T, C]", lambda f: _random(f, (f.B, f.T, f.C), 7), ("B", "T", "C")),
        SECOND["sbc"],
        SECOND["bs"],
        SECOND["bt"],
    ]


def unknown() -> list[Candidate]:
    """For a parameter whose name tells nothing."""
    return [
        NONE,
        *second(),
        Candidate("[B] zeros", lambda f: torch.zeros(f.B, dtype=torch.long), ("B",)),
        constant("0", 0),
        Candidate("[T, T] zeros", lambda f: torch.zeros(f.T, f.T, dtype=f.dtype), ("T", "S")),
        constant("False", False),
    ]


def with_width(candidate: Candidate, width: int) -> Candidate:
    """The same input with another last axis."""
    return replace(candidate, make=lambda f: candidate.make(replace(f, C=width)))
