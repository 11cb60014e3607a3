"""A diagnostic is data: code, severity, one line that says what, labels that say why, help that says how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnscope.schema import ModelInfo, Shown, Span, Trace

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Label:
    """A span of the user's source and what is to be said of it (lower case, no final full stop)."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `span` is where it shows; `labels` say why, `notes` what was observed, `help` how to mend.

    `message` says what is wrong and never how to mend it. `evidence` is a small table (header row first)
    of the numbers that prove a silent fault; empty for a crash. `label` is what stands under `span`.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    label: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    evidence: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """One experiment of `check` that was done and what it showed: `future: 0 of 21 pairs leak`."""

    name: str
    result: str
    held: bool


@dataclass(frozen=True, slots=True, repr=False)
class Report(Shown):
    """What `check` and `run` say: findings, what was tried, and the trace if there is one."""

    target: str
    findings: tuple[Diagnostic, ...]
    tried: tuple[Tried, ...] = ()
    trace: Trace | None = None
    model: ModelInfo | None = None
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """True exactly when a finding has severity `error`: exit code 1."""
        return any(finding.severity == "error" for finding in self.findings)
