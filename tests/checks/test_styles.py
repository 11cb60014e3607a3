"""No finding on correct attention of any style; most of a sample of mutants is found, no harmless one is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import attnscope
from tests.checks import mutants, styles


@pytest.mark.parametrize("name", styles.STYLES)
def test_nothing_is_found_on_a_correct_style(name: str) -> None:
    style = styles.STYLES[name]
    module = mutants.made(styles, name)
    report = attnscope.check(module, *style.args, **style.kwargs, **style.options)
    assert not report.failed
    assert {one.code for one in report.findings} == styles.NOTED.get(name, set())
    assert all(one.severity == "note" for one in report.findings)
    assert any(tried.name == "forward" and tried.held for tried in report.tried)


def _sample(mutations: tuple[tuple[str, str], ...], step: int) -> list[mutants.Mutant]:
    return list(mutants.mutants(mutations))[::step]


def _is_found(mutant: mutants.Mutant, folder: Path) -> bool | None:
    """Whether a mutant is an error; None where it is no other function, or crashes."""
    try:
        module = mutants.load(mutant, folder)
    except SyntaxError:
        return None  # an argument given twice
    style = styles.STYLES[mutant.style]
    before = mutants.outputs(mutants.made(styles, mutant.style), style)
    after = mutants.outputs(mutants.made(module, mutant.style), style)
    if isinstance(after, type) or mutants.same(before, after):
        return None
    made = mutants.made(module, mutant.style)
    return attnscope.check(made, *style.args, **style.kwargs, **style.options).failed


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
        try:
            module = mutants.load(mutant, tmp_path)
        except SyntaxError:
            continue
        style = styles.STYLES[mutant.style]
        before = mutants.outputs(mutants.made(styles, mutant.style), style)
        if not mutants.same(before, mutants.outputs(mutants.made(module, mutant.style), style)):
            continue
        tried += 1
        report = attnscope.check(
            mutants.made(module, mutant.style), *style.args, **style.kwargs, **style.options
        )
        found = {one.code for one in report.findings} - styles.NOTED.get(mutant.style, set())
        assert not found, mutant.name
    assert tried >= 20
