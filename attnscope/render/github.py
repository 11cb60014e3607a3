"""Findings as commands of a GitHub workflow: each becomes an annotation at its line of a pull request."""

from __future__ import annotations

from attnscope.diagnostic import Diagnostic, Report, Survey
from attnscope.files import short_path

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def to_github(obj: object) -> str:
    """One command a line: `::error file=…,line=…,col=…,title=AS101::message`; nothing where nothing is found.

    What could not be checked is a warning.
    """
    if not isinstance(obj, Report | Survey):
        raise TypeError(f"no workflow commands are defined for {type(obj).__name__}")
    lines = []
    for one in obj.targets if isinstance(obj, Survey) else (obj,):
        if isinstance(one, Report):
            lines += [_command(finding) for finding in one.findings]
        else:
            properties = _properties({"title": "not checked"})
            lines.append(f"::warning {properties}::{_data(f'{one.target}: {one.reason}')}")
    return "".join(f"{line}\n" for line in lines)


def _command(finding: Diagnostic) -> str:
    span = finding.span
    place: dict[str, object] = {}
    if span is not None:
        place = {"file": short_path(span.file), "line": span.line}
        if span.end_line == span.line:  # columns are refused where the lines differ
            place |= {"col": span.column, "endColumn": span.end_column}
        else:
            place["endLine"] = span.end_line
    inside = f" in `{finding.module}`" if finding.module else ""
    said = [finding.message + inside, *([f"{finding.label}"] if finding.label else [])]
    said += [f"note: {note}" for note in finding.notes]
    said += [f"help: {finding.help}"] if finding.help else []
    properties = _properties({**place, "title": finding.code})
    return f"::{_LEVELS[finding.severity]} {properties}::{_data(chr(10).join(said))}"


def _properties(values: dict[str, object]) -> str:
    escaped = {
        name: _data(str(value)).replace(":", "%3A").replace(",", "%2C") for name, value in values.items()
    }
    return ",".join(f"{name}={value}" for name, value in escaped.items())


def _data(text: str) -> str:
    """As the runner reads it: a line end inside a command would begin another."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
