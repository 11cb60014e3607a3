"""Masks: against a loop over queries and keys, and against what their own lines of torch build."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnscope import masks
from attnscope.errors import UsageError

CASES: list[tuple[str, int, dict[str, Any]]] = [
    (kind, length, {**extra, **late})
    for length in (1, 2, 6, 9)
    for kind, extra in [
        ("causal", {}),
        ("full", {}),
        ("sliding", {"window": 1}),
        ("sliding", {"window": 3}),
        ("sliding", {"window": 20}),
        ("prefix", {"prefix": 1}),
        ("prefix", {"prefix": length}),
        ("prefix", {"prefix": (length + 1) // 2}),
    ]
    for late in [{}, {"queries": 1}, {"queries": max(1, length - 3)}, {"queries": 1, "offset": length // 2}]
    if not (kind == "full" and "offset" in late)
]


def may_attend(kind: str, query: int, key: int, window: int, prefix: int) -> bool:
    """The definition, for one query and one key, both as positions."""
    if kind == "full":
        return True
    if kind == "sliding":
        return 0 <= query - key < window
    return key <= query or (kind == "prefix" and key < prefix)


@pytest.mark.parametrize(("kind", "length", "sizes"), CASES)
def test_a_mask_is_its_definition_and_its_lines_build_it(
    kind: str, length: int, sizes: dict[str, Any]
) -> None:
    mask = masks.build(kind, length, **sizes)
    queries = sizes.get("queries", length)
    offset = sizes.get("offset", length - queries)
    expected = [
        [
            may_attend(kind, offset + i, j, sizes.get("window", 0), sizes.get("prefix", 0))
            for j in range(length)
        ]
        for i in range(queries)
    ]
    assert mask.allowed.dtype == np.bool_
    assert mask.allowed.tolist() == expected
    assert mask.allowed.any(axis=1).all()

    assert list(mask.torch_lines) == ["allowed", "blocked", "additive"]
    built = {name: eval(line, {"torch": torch}) for name, line in mask.torch_lines.items()}
    assert built["allowed"].dtype == built["blocked"].dtype == torch.bool
    assert built["allowed"].tolist() == expected
    assert torch.equal(built["blocked"], ~built["allowed"])
    assert torch.equal(built["additive"] == 0, built["allowed"])
    assert torch.equal(built["additive"] == float("-inf"), built["blocked"])
    assert all("\n" not in line and len(line) < 150 for line in mask.torch_lines.values())


def test_a_cache_of_six_keys_and_two_new_queries() -> None:
    mask = masks.build("causal", 6, queries=2)
    assert mask.allowed.tolist() == [[True] * 5 + [False], [True] * 6]
    assert mask.parameters == {"length": 6, "queries": 2, "offset": 4}


def test_parameters_are_those_of_the_kind() -> None:
    assert masks.build("full", 4).parameters == {"length": 4, "queries": 4}
    assert masks.build("sliding", 4, window=2).parameters == {
        "length": 4,
        "queries": 4,
        "offset": 0,
        "window": 2,
    }


def test_causal_is_what_torch_itself_applies() -> None:
    q = torch.randn(1, 5, 4)
    allowed = eval(masks.build("causal", 5).torch_lines["allowed"], {"torch": torch})
    attend = torch.nn.functional.scaled_dot_product_attention
    assert torch.allclose(attend(q, q, q, attn_mask=allowed), attend(q, q, q, is_causal=True), atol=1e-6)


def test_long_masks() -> None:
    mask = masks.build("sliding", 4096, window=256)
    assert mask.allowed.shape == (4096, 4096)
    assert int(mask.allowed.sum()) == 256 * 4096 - 256 * 255 // 2
    assert masks.build("causal", masks.MAX_LENGTH, queries=1).allowed.all()


def test_sizes_may_be_numpy_integers() -> None:
    assert masks.build("causal", np.int64(3)).allowed.sum() == 6  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "length", "sizes", "words"),
    [
        ("causal", 0, {}, "--len 0 is out of range; --len from 1 to 16384 would work"),
        ("causal", -3, {}, "--len -3 is out of range"),
        ("causal", 16385, {}, "--len 16385 is out of range"),
        ("causal", 2.0, {}, "--len must be a whole number, not float"),
        (
            "causal",
            4,
            {"window": 2},
            "a causal mask has no use for --window; leave it out, or take --kind sliding",
        ),
        ("sliding", 4, {"window": 2, "prefix": 2}, "no use for --prefix"),
        ("full", 4, {"offset": 0}, "a full mask has no use for --offset"),
        ("sliding", 4, {}, "a sliding mask needs --window; for example --window 3"),
        ("prefix", 2, {}, "a prefix mask needs --prefix; for example --prefix 2"),
        ("sliding", 4, {"window": 0}, "--window 0 is out of range"),
        ("prefix", 4, {"prefix": 5}, "--prefix 5 is out of range; --prefix from 1 to 4 would work"),
        ("causal", 4, {"queries": 5}, "--queries 5 is out of range; --queries from 1 to 4 would work"),
        ("causal", 4, {"queries": 0}, "--queries 0 is out of range"),
        ("causal", 6, {"queries": 2, "offset": 5}, "--offset 5 is out of range; --offset from 0 to 4 would"),
        ("causal", 6, {"offset": 1}, "--offset 1 is out of range; only 0 would work"),
        ("casual", 4, {}, "unknown kind of mask `casual`; did you mean causal?"),
        ("zzz", 4, {}, "known: causal, full, sliding, prefix"),
    ],
)
def test_what_does_not_fit_is_told(kind: str, length: Any, sizes: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError) as error:
        masks.build(kind, length, **sizes)
    assert words in str(error.value)
