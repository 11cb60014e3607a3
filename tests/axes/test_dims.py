"""How the axes of a reshape belong together: the finest groups of equal products."""

from __future__ import annotations

import pytest

from attnscope.axes.dims import regroup


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((2, 6, 16), (2, 6, 2, 8), ["0:0", "1:1", "2:2,3"]),
        ((2, 6, 2, 8), (2, 6, 16), ["0:0", "1:1", "2,3:2"]),
        ((2, 6, 16), (12, 16), ["0,1:0", "2:1"]),
        ((2, 6, 16), (2, 2, 6, 8), ["0:0", "1,2:1,2,3"]),
        ((2, 16), (2, 1, 16), ["0:0", ":1", "1:2"]),
        ((2, 1, 16), (2, 16), ["0:0", "1:", "2:1"]),
        ((1, 4), (1, 4), ["0:0", "1:1"]),
        ((), (1,), [":0"]),
        ((2, 6), (3, 5), None),
        ((2, 6), (2, 7), None),
        ((0, 6), (6, 0), None),
    ],
)
def test_axes_of_a_reshape_are_grouped(
    before: tuple[int, ...], after: tuple[int, ...], groups: list[str] | None
) -> None:
    found = regroup(before, after)
    said = None if found is None else [":".join(",".join(map(str, one)) for one in pair) for pair in found]
    assert said == groups
