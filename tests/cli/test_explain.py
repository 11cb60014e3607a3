"""`attnscope explain`: one code, all codes, and a code that there is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attnscope import codebook


def test_a_code_is_explained_by_its_own_docstring(cli: Callable[..., Any]) -> None:
    result = cli("explain", "as101", "--format", "json")
    one = codebook.explain("AS101")
    assert (result.code, result.err) == (0, "")
    assert result.json == {
        "schema": "attnscope/1",
        "command": "explain",
        "code": "AS101",
        "title": one.title,
        "meaning": one.meaning,
        "example": one.example,
        "cure": one.cure,
        "change": one.change,
    }


def test_without_a_code_all_are_listed(cli: Callable[..., Any]) -> None:
    result = cli("explain", "--format", "json")
    assert [one["code"] for one in result.json["codes"]] == [one.code for one in codebook.codes()]
    assert len({one["code"] for one in result.json["codes"]}) == len(result.json["codes"])


@pytest.mark.parametrize("width", [40, 80, 160])
def test_every_explanation_fits_its_width(cli: Callable[..., Any], width: int) -> None:
    for one in codebook.codes():
        out = cli("explain", one.code, "--width", str(width)).out
        head, _, rest = out.partition("\nexample\n")
        example, _, end = rest.partition("\ncure\n")
        cure, _, change = end.lstrip("\n").partition("\n\n")
        assert max(map(len, out.splitlines())) <= width
        said = f"{one.code} {one.title} {one.meaning}"  # a long word may be broken at the edge
        assert "".join(head.split()) == "".join(said.split())
        assert "".join(cure.split()) == "".join(one.cure.split())
        if width == 160:
            for shown, source in ((example, one.example), (change, one.change)):
                assert [line.strip() for line in shown.strip().splitlines()] == [
                    line.strip() for line in source.strip().splitlines()
                ]


def test_an_unknown_code_is_one_line(cli: Callable[..., Any]) -> None:
    result = cli("explain", "AS999")
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert "AS999" in result.err
