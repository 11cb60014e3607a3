"""Random chains of views and copies, as source, made together with what torch itself gives for them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor

SHAPES = ((6, 16), (2, 6, 16), (4,), (3, 5), (2, 3, 4), (1, 8), (5, 1, 6), (2, 2, 3, 4), (12,))


def chains(number: int) -> Iterator[tuple[tuple[int, ...], str, Tensor, Tensor | None]]:
    """Shape, chain, what its last step but one gave, and what torch gives at its end: None for a refusal."""
    for seed in range(number):
        rng = random.Random(seed)
        shape = rng.choice(SHAPES)
        x = torch.arange(torch.Size(shape).numel()).reshape(shape)
        text = "x"
        for _ in range(rng.randrange(1, 6)):
            step = _step(rng, x)
            text += step
            try:
                made = eval(f"y{step}", {"y": x})
            except (RuntimeError, IndexError, ValueError):
                yield shape, text, x, None
                break
            if not made.numel():
                break  # nothing can be shown of it
            x = made
        else:
            yield shape, text, x, x


def _factors(rng: random.Random, size: int) -> list[int]:
    parts = []
    for prime in (2, 2, 2, 3, 3, 5):
        if size % prime == 0 and rng.random() < 0.6:
            parts.append(prime)
            size //= prime
    parts.append(size)
    rng.shuffle(parts)
    return parts


def _step(rng: random.Random, x: Tensor) -> str:
    dims = x.dim()
    if not dims:
        return ".unsqueeze(0)"

    def axis() -> int:
        return rng.randrange(-dims - (rng.random() < 0.1), dims + (rng.random() < 0.1))

    sizes = _factors(rng, x.numel())
    if rng.random() < 0.3:
        sizes[rng.randrange(len(sizes))] = -1
    elif rng.random() < 0.1:
        sizes[0] += 1
    order = rng.sample(range(dims), dims)
    some = rng.randrange(-dims, dims)
    part = rng.randrange(1, x.shape[some] + 1)
    wide = [rng.choice([-1, n]) if n != 1 else rng.choice([1, 3, -1]) for n in x.shape]
    front = [2] if rng.random() < 0.3 else []
    picks = rng.choices([":", "0", "1:", "::2", "None", "-1"], k=rng.randrange(1, dims + 1))
    return rng.choice(
        [
            f".view({_words(sizes)})",
            f".view({_words(sizes)})",
            f".reshape({_words(sizes)})",
            f".transpose({axis()}, {axis()})",
            f".transpose({axis()}, {axis()})",
            f".permute({_words(order)})",
            f".flatten({axis()}, {axis()})",
            f".unflatten({some}, {(*_factors(rng, x.shape[some]),)})",
            f".unsqueeze({rng.randrange(-dims - 1, dims + 1)})",
            rng.choice([".squeeze()", f".squeeze({axis()})"]),
            f".expand({_words([*front, *wide])})",
            rng.choice([".contiguous()", ".clone()"]),
            ".mT" if dims > 1 else ".contiguous()",
            f".split({part}, {some})[-1]",
            f".split([{max(x.shape[some] - 1, 1)}, {1 + (rng.random() < 0.2)}], {some})[1]",
            f".chunk({rng.randrange(1, 4)}, {axis()})[0]",
            f".unbind({axis()})[0]",
            f".repeat_interleave(2, {axis()})",
            f".repeat({_words([rng.choice([1, 2]) for _ in range(dims)])})",
            f".select({axis()}, {rng.randrange(-2, 3)})",
            f".narrow({axis()}, {rng.randrange(2)}, {rng.randrange(1, 3)})",
            f".movedim({axis()}, {axis()})",
            f"[{', '.join(picks)}]",
        ]
    )


def _words(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes))
