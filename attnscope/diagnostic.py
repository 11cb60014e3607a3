"""A diagnostic is data: code, severity, one line that says what, labels that say why, help that says how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnscope.schema import Diagnostic, Label, ModelInfo, Severity, Shown, Trace

__all__ = ["NOTHING_FOUND", "Diagnostic", "Label", "Report", "Severity", "Status", "Tried"]

NOTHING_FOUND = "nothing found"  # the result of a row that has no number to show
Status = Literal["done", "not applicable", "not tried"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One experiment of `check` and what it showed: `future: 0 of 21 pairs leak`.

    `module` is the path of the attention that it was done on; empty for the whole target. `status` is `done`;
    `not applicable` where there is nothing that it could be done on, `not tried` where it could not be done
    or was cut off: `result` then says why. `held` is False unless it was done.
    """

    name: str
    result: str
    held: bool
    module: str = ""
    status: Status = "done"


@dataclass(frozen=True, slots=True, repr=False)
class Report(Shown):
    """What `check` and `run` say: findings, what was tried, and the trace if there is one.

    `complete` is False where something raised inside, or was cut off: what was not tried may hide a fault.
    """

    target: str
    findings: tuple[Diagnostic, ...]
    tried: tuple[Tried, ...] = ()
    trace: Trace | None = None
    model: ModelInfo | None = None
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True

    @property
    def failed(self) -> bool:
        """True exactly when a finding has severity `error`: exit code 1."""
        return any(finding.severity == "error" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A target that could not be checked, and why. `named`: the user gave it by its name."""

    target: str
    reason: str
    named: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class Survey(Shown):
    """What `check` says of several targets, in the order in which they were given or found."""

    targets: tuple[Report | Unchecked, ...]

    @property
    def reports(self) -> tuple[Report, ...]:
        return tuple(one for one in self.targets if isinstance(one, Report))

    @property
    def unchecked(self) -> tuple[Unchecked, ...]:
        return tuple(one for one in self.targets if isinstance(one, Unchecked))

    @property
    def failed(self) -> bool:
        """True exactly when a finding of some target has severity `error`: exit code 1."""
        return any(report.failed for report in self.reports)

    @property
    def complete(self) -> bool:
        """Whether all targets were checked, each in full."""
        return not self.unchecked and all(report.complete for report in self.reports)
