"""Equal layers are folded, unequal ones never."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from attnscope.folding import Same, fold_layers
from attnscope.schema import Step
from tests.render import made


def build(*places: tuple[str, str]) -> list[Step]:
    """Steps of the given (module, operation)."""
    steps = made.Steps()
    for module, op in places:
        steps.module = module
        steps.add(len(op), op, "", None, [made.info("B 1, T 6")])
    return steps.steps


def folded(steps: Sequence[Step]) -> list[str]:
    return [
        f"{','.join(item.paths)}={item.like}*{item.steps}"
        if isinstance(item, Same)
        else f"{item.module}:{item.op}"
        for item in fold_layers(steps)
    ]


def test_a_plain_module_is_left_alone() -> None:
    assert folded(build(("", "a"), ("attn", "bb"))) == [":a", "attn:bb"]


def test_equal_layers() -> None:
    steps = build(("", "emb"), *((f"h.{n}.attn", op) for n in range(4) for op in ("q", "kk")), ("", "norm"))
    assert folded(steps) == [":emb", "h.0.attn:q", "h.0.attn:kk", "h.1,h.2,h.3=h.0*2", ":norm"]


def test_what_the_parent_does_between_layers_belongs_to_them() -> None:
    steps = build(
        *((module, op) for n in range(3) for module, op in ((f"h.{n}", "f"), ("", "add"))), ("", "norm")
    )
    assert folded(steps) == ["h.0:f", ":add", "h.1,h.2=h.0*1", ":norm"]


def test_layers_that_alternate() -> None:
    steps = build(*((f"h.{n}", "full" if n % 2 else "window") for n in range(4)))
    assert folded(steps) == ["h.0:window", "h.1:full", "h.2=h.0*1", "h.3=h.1*1"]


def test_layers_in_layers() -> None:
    steps = build(*((f"h.{n}.heads.{m}", "f") for n in range(2) for m in range(3)))
    assert folded(steps) == ["h.0.heads.0:f", "h.0.heads.1,h.0.heads.2=h.0.heads.0*1", "h.1=h.0*3"]


def test_another_shape_is_another_layer() -> None:
    steps = build(("h.0", "f"), ("h.1", "f"), ("h.2", "f"))
    steps[1] = dataclasses.replace(steps[1], outputs=(made.info("B 1, T 7"),))
    assert folded(steps) == ["h.0:f", "h.1:f", "h.2=h.0*1"]


def test_a_layer_that_failed_is_shown_up_to_the_fault() -> None:
    steps = build(*((f"h.{n}", op) for n in range(3) for op in ("a", "bb")))[:-1]
    steps[-1] = dataclasses.replace(steps[-1], error="boom")
    assert folded(steps) == ["h.0:a", "h.0:bb", "h.1=h.0*2", "h.2:a"]


def test_where_memory_became_noncontiguous_counts_from_the_layer() -> None:
    steps = build(*((f"h.{n}", op) for n in range(2) for op in ("a", "bb")))
    steps[1] = dataclasses.replace(steps[1], noncontiguous_since=0)
    steps[3] = dataclasses.replace(steps[3], noncontiguous_since=2)
    assert folded(steps) == ["h.0:a", "h.0:bb", "h.1=h.0*2"]
    steps[3] = dataclasses.replace(steps[3], noncontiguous_since=3)
    assert len(folded(steps)) == 4


def test_no_step_is_lost() -> None:
    places = [
        (f"{c}.{n}.{d}.{m}", "f" * (1 + n % 2)) for c in "ab" for n in range(4) for d in "xy" for m in "012"
    ]
    steps = build(*places)
    assert len(fold_layers(steps)) < len(steps) / 2
    kept = 0
    for item in fold_layers(steps):
        kept += item.steps * len(item.paths) if isinstance(item, Same) else 1
    assert kept == len(steps)
