"""Silent faults, each proved by experiment: a module and one call of it → what was found, and what was tried.

One file for each code; the table names them in the order in which they are done, the most telling first. A
file's docstring is what `attnscope explain` prints. `HIDES` says which findings only follow from another one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from attnscope.diagnostic import Diagnostic, Tried
from attnscope.strict import passed_over

if TYPE_CHECKING:
    from attnscope.checks.lab import Lab

CHECKS: tuple[tuple[str, str], ...] = (
    ("AS217", "as217_unregistered"),
    ("AS220", "as220_made_in_forward"),
    ("AS214", "as214_random_in_eval"),
    ("AS223", "as223_overflow"),
    ("AS206", "as206_nan"),
    ("AS224", "as224_expanded_write"),
    ("AS212", "as212_batch_mixed"),
    ("AS209", "as209_over_heads"),
    ("AS211", "as211_mixed_by_view"),
    ("AS207", "as207_softmax_axis"),
    ("AS203", "as203_inverted"),
    ("AS204", "as204_unused_mask"),
    ("AS213", "as213_weak_mask"),
    ("AS205", "as205_mask_after_softmax"),
    ("AS225", "as225_row_sums"),
    ("AS201", "as201_future"),
    ("AS202", "as202_blind"),
    ("AS221", "as221_padding"),
    ("AS208", "as208_scale"),
    ("AS210", "as210_number_of_maps"),
    ("AS219", "as219_kv_heads"),
    ("AS222", "as222_positions"),
    ("AS218", "as218_cache"),
    ("AS216", "as216_no_gradient"),
    ("AS215", "as215_not_saved"),
)

HIDES: dict[str, frozenset[str]] = {
    "AS224": frozenset({"AS201", "AS202", "AS203", "AS204", "AS206", "AS213"}),
    "AS212": frozenset({"AS201", "AS202", "AS203", "AS209", "AS210", "AS211", "AS221", "AS222"}),
    "AS209": frozenset({"AS202", "AS208", "AS210", "AS211", "AS222"}),
    "AS211": frozenset({"AS201", "AS202", "AS208", "AS210", "AS219", "AS222"}),
    "AS207": frozenset({"AS201", "AS205", "AS212", "AS225", "AS206"}),
    "AS203": frozenset({"AS201", "AS202", "AS206"}),
    "AS204": frozenset({"AS201"}),
    "AS225": frozenset({"AS208"}),
    "AS223": frozenset({"AS206"}),
    "AS220": frozenset({"AS119", "AS214", "AS215", "AS216"}),
    "AS217": frozenset({"AS119", "AS215", "AS216"}),
    "AS214": frozenset({"AS215", "AS218", "AS225"}),
    "AS202": frozenset({"AS222"}),
    "AS206": frozenset({"AS201", "AS202", "AS204", "AS213", "AS216", "AS218", "AS222"}),
}


def codes() -> tuple[str, ...]:
    """All codes of this package, sorted."""
    return tuple(sorted(code for code, _ in CHECKS))


def run_checks(
    lab: Lab, wanted: Collection[str] | None = None, progress: Callable[[str], None] | None = None
) -> Iterator[Diagnostic | Tried]:
    """What each check says, as it says it. A check that itself fails on an unusual module is passed over."""
    for code, name in CHECKS:
        if wanted is not None and code not in wanted:
            continue
        if lab.spent:
            yield Tried(code, "not tried: the time was up", False)
            continue
        if progress is not None:
            progress(code)
        try:
            yield from list(importlib.import_module(f"{__name__}.{name}").check(lab))
        except KeyboardInterrupt:
            raise
        except Exception as error:
            passed_over(error)


def without_consequences(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Findings without those that only follow from another error, errors first, the most telling first."""
    kept = list(findings)
    errors = {one.code for one in kept if one.severity == "error"}
    hidden = set().union(*(HIDES.get(code, frozenset()) for code in errors)) if errors else set()
    order = {code: place for place, (code, _) in enumerate(CHECKS)}
    rank = {"error": 0, "warning": 1, "note": 2}
    kept = [one for one in kept if one.code not in hidden]
    return tuple(sorted(kept, key=lambda one: (rank[one.severity], order.get(one.code, -1))))
