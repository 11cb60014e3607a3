"""`attnscope reshape` on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_json_has_numbers_and_memory(cli: Cli) -> None:
    body = cli("reshape", "view(2, 2).T.contiguous()", "--shape", "4", "--format", "json").json
    assert (body["schema"], body["command"], body["shape"]) == ("attnscope/1", "reshape", [4])
    view, turned, copy = body["steps"]
    assert turned["outputs"][0] == {
        "shape": [2, 2],
        "stride": [1, 2],
        "offset": 0,
        "contiguous": False,
        "numbers": [[0, 2], [1, 3]],
        "memory": [0, 1, 2, 3],
    }
    assert [view["memory"], turned["memory"], copy["memory"]] == ["view", "view", "copy"]
    assert copy["outputs"][0]["memory"] == [0, 2, 1, 3]


def test_a_refused_step_is_exit_1_with_what_would_work(cli: Cli) -> None:
    result = cli("reshape", "view(3, 5)", "--shape", "4,4")
    assert result.code == 1
    assert result.out.splitlines()[-2:] == [
        "  cannot be done: [4, 4] has 16 elements, 3 × 5 are 15",
        "  would work: view(4, 4)",
    ]


@pytest.mark.parametrize("shape", ["6,16", "[6, 16]", "(6,16)", "6x16", "6 16"])
def test_ways_to_write_a_shape(cli: Cli, shape: str) -> None:
    assert cli("reshape", "mT", "--shape", shape, "--format", "json").json["shape"] == [6, 16]


@pytest.mark.parametrize(
    "args",
    [("reshape",), ("reshape", "mT"), ("reshape", "mT", "--shape", "a"), ("reshape", "mT", "--shape", "6,16",
      "--heads", "3"), ("reshape", "nope()", "--shape", "2,2")],
)  # fmt: skip
def test_wrong_command_lines(fails: Callable[..., str], args: tuple[str, ...]) -> None:
    fails(*args)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_asked_for(cli: Cli, width: int) -> None:
    for shape, chain in (
        ("64,768", "view(64, 12, 64).transpose(0, 1).reshape(64, 768)"),
        ("2,3,40", "mT[1:, ::3]"),
    ):
        out = cli("reshape", chain, "--shape", shape, "--width", str(width)).out
        assert max(map(len, out.splitlines())) <= width
