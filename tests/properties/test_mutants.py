"""Of a sample of mutants most are found; what changes no function is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import attnscope
from attnscope.diagnostic import Report
from tests.importing import load_text
from tests.properties import mutants
from tests.zoo import Row, made, styles


def _sample(mutations: tuple[tuple[str, str], ...], step: int) -> list[mutants.Mutant]:
    return list(mutants.mutants(mutations))[::step]


def _mutated(mutant: mutants.Mutant, folder: Path) -> Row | None:
    """The mutant's row; None where its text is no Python: an argument given twice."""
    try:
        module = load_text(mutant.source, folder)
    except SyntaxError:
        return None
    row: Row = module.ZOO[mutant.style]
    return row


def _check(row: Row) -> Report:
    return attnscope.check(made(row), *row.args, **row.kwargs, **row.said)


def _is_found(mutant: mutants.Mutant, folder: Path) -> bool | None:
    """Whether a mutant is an error; None where it is no other function, or crashes."""
    row = _mutated(mutant, folder)
    if row is None:
        return None
    before, after = mutants.outputs(styles.ZOO[mutant.style]), mutants.outputs(row)
    if isinstance(after, type) or mutants.same(before, after):
        return None
    return _check(row).failed


@pytest.mark.parametrize("part", range(4))
def test_mutants_are_killed(part: int, tmp_path: Path, may_only_shrink: Callable[..., None]) -> None:
    """The survivors of a sample of mutants stand in a list that may only shrink."""
    sample = _sample(mutants.KILLING, 23)[part::4]
    found = {mutant.name: _is_found(mutant, tmp_path) for mutant in sample}
    assert sum(one is not None for one in found.values()) >= 5
    missed = [name for name, one in found.items() if one is False]
    may_only_shrink(Path(__file__).with_name("survivors.txt"), found, missed)


def test_harmless_mutants_are_left_alone(tmp_path: Path) -> None:
    tried = 0
    for mutant in _sample(mutants.HARMLESS, 17):
        row = _mutated(mutant, tmp_path)
        if row is None or not mutants.same(mutants.outputs(styles.ZOO[mutant.style]), mutants.outputs(row)):
            continue
        tried += 1
        assert {one.code for one in _check(row).findings} <= set(row.found), mutant.name
    assert tried >= 20
