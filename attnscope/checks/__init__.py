"""Silent faults, each proved by experiment: a module and one call of it → what was found, and what was tried.

One file for each code; `registry` names them in the order in which they are done. A file's docstring is what
`attnscope explain` prints.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from attnscope.checks.lacks import lacks
from attnscope.checks.registry import CHECKS, Of, Row
from attnscope.diagnostic import NOTHING_FOUND, Diagnostic, Tried
from attnscope.strict import passed_over

if TYPE_CHECKING:
    from attnscope.checks.lab import Lab

EVERY: tuple[Of, ...] = ("attention", "both", "whole")


def codes() -> tuple[str, ...]:
    """All codes of this package, sorted."""
    return tuple(sorted(row.code for row in CHECKS))


def run_checks(
    lab: Lab,
    wanted: Collection[str] | None = None,
    progress: Callable[[str], None] | None = None,
    of: Collection[Of] = EVERY,
) -> Iterator[Diagnostic | Tried]:
    """What each check says, as it says it, and a row for each: done, not applicable, not tried, and why."""
    for row in CHECKS:
        if (wanted is not None and row.code not in wanted) or row.of not in of:
            continue
        if lab.spent:
            yield Tried(
                row.name, "not tried: there were too many operations before it", False, status="not tried"
            )
            continue
        if progress is not None:
            progress(row.code)
        try:
            said = list(importlib.import_module(f"{__name__}.{row.module}").check(lab))
        except KeyboardInterrupt:
            raise
        except Exception as error:
            passed_over(error)
            said = [failure(row.name, error)]
        yield from _with_row(row, lab, said)


def failure(name: str, error: BaseException) -> Tried:
    """The row of an experiment of ours that raised."""
    frames = list(extract_tb(error.__traceback__))
    place = f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return Tried(name, f"could not be tried: {type(error).__name__}{place}", False, status="not tried")


def _with_row(row: Row, lab: Lab, said: list[Diagnostic | Tried]) -> Iterator[Diagnostic | Tried]:
    """What a check said; each check has a row, and no finding stands beside rows that all held."""
    rows = [one for one in said if isinstance(one, Tried)]
    faults = [one for one in said if isinstance(one, Diagnostic) and one.severity != "note"]
    if faults and not any(not one.held for one in rows):
        rows.append(Tried(row.name, faults[0].message, False))
    elif not rows:
        missed = lacks(lab)
        missing = next((missed[need] for need in row.needs if need in missed), "")
        why = missing or ("" if row.quiet else row.otherwise or "nothing to try it on")
        rows.append(
            Tried(row.name, why, False, status="not applicable")
            if why
            else Tried(row.name, NOTHING_FOUND, True)
        )
    yield from rows
    yield from (one for one in said if isinstance(one, Diagnostic))
