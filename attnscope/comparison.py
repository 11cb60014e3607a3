"""What `compare` found, as data: which weights were moved, what was run, where the two modules part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from attnscope.diagnostic import Diagnostic
from attnscope.schema import ModelInfo, Shown, Trace


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One of the two modules. `raised`: what making or calling it raised; `operations`: how many steps."""

    name: str
    model: ModelInfo
    parameters: int
    buffers: int
    operations: int
    trace: Trace | None = None
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """One parameter of B, and those of A that filled it. `how`: `same name`, `transposed`, `rows 0 to 7` …"""

    target: str
    sources: tuple[str, ...]
    how: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Neutral:
    """A parameter that the other side lacks, set to do nothing: `value` is `0` or `the identity`."""

    side: str
    name: str
    value: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """A parameter that could not be moved, and why."""

    side: str
    name: str
    shape: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One experiment done with both modules.

    `held` is None where nothing could be compared. `largest` is the largest difference, `tolerance` what was
    allowed, `where` the place of the largest difference by axis (`batch`, `position`, `channel`).
    """

    name: str
    result: str
    held: bool | None
    largest: float | None = None
    tolerance: float | None = None
    where: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows of the two traces that stand beside each other; None where a side has no such row.

    `same`: both hold the same numbers, up to the order of axes and their splitting.
    """

    a: int | None
    b: int | None
    same: bool


@dataclass(frozen=True, slots=True)
class Parting:
    """The first step at which the traces part: rows of A and B (None: that side is at its end).

    `heads` are the heads that differ, where the step has a head axis in both.
    """

    a: int | None
    b: int | None
    heads: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Shown):
    """Whether two modules are the same function, and the evidence. `layout`: how fused weights were read."""

    a: ComparedSide
    b: ComparedSide
    findings: tuple[Diagnostic, ...] = ()
    moved: tuple[Moved, ...] = ()
    neutral: tuple[Neutral, ...] = ()
    left: tuple[Left, ...] = ()
    layout: str = ""
    runs: tuple[ComparedRun, ...] = ()
    pairs: tuple[Pair, ...] = ()
    parting: Parting | None = None
    largest: float | None = None
    tolerance: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """True exactly when a finding has severity `error`: exit code 1."""
        return any(finding.severity == "error" for finding in self.findings)

    @property
    def equal(self) -> bool:
        """True when both ran and nothing that was tried told them apart."""
        return not self.failed
