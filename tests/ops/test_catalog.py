"""Kinds of operations, and the letters of an einsum, against PyTorch itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnscope.ops.catalog import CUTS, FILLS, FRESH, LIKES, MOVES, PRODUCTS, plain
from attnscope.ops.einsum import DOTS, Equation, read, spread


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("bhtd,bhsd->bhts", Equation(("bhtd", "bhsd"), "bhts")),
        ("...td, ...sd -> ...ts", Equation((".td", ".sd"), ".ts")),
        ("ij,jk", Equation(("ij", "jk"), "ik")),
        ("...ij,...jk", Equation((".ij", ".jk"), ".ik")),
        ("ii", Equation(("ii",), "")),
        (torch.zeros(1), None),
    ],
    ids=str,
)
def test_an_equation_is_read(text: Any, wanted: Equation | None) -> None:
    assert read(text) == wanted


@pytest.mark.parametrize("text", ["ij,jk", "ba", "...ij,...jk", "iji", "ij,jk,kl"])
def test_what_is_left_out_is_what_pytorch_leaves_out(text: str) -> None:
    equation = read(text)
    assert equation is not None
    sizes = {letter: size for size, letter in enumerate(sorted(set("ijklab")), 2)}
    given = [torch.ones(*(sizes[x] for x in letters if x != DOTS)) for letters in equation.inputs]
    assert list(torch.einsum(text, *given).shape) == [sizes[x] for x in equation.output if x != DOTS]


def test_what_is_summed_over_is_shared_and_gone() -> None:
    equation = read("bhtd,bhsd->bhts")
    assert equation is not None and equation.summed == {"d"}


def test_dots_stand_for_as_many_axes_as_are_left() -> None:
    assert spread(".td", 4) == [DOTS, DOTS, "t", "d"]
    assert spread("td", 2) == ["t", "d"]
    with pytest.raises(ValueError, match="3 axes for td"):
        spread("td", 3)


def test_kinds_do_not_contradict_each_other() -> None:
    assert CUTS <= MOVES
    assert LIKES <= FRESH
    assert not MOVES & (FRESH | PRODUCTS | FILLS)
    assert plain("masked_fill_") in FILLS
