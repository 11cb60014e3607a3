"""Findings as SARIF 2.1.0, which code hosts and editors read: one run, its rules from the pages of codes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attnscope
from attnscope.codebook import Explanation, explain
from attnscope.diagnostic import Diagnostic, Report, Survey, Unchecked
from attnscope.errors import UsageError
from attnscope.files import short_path
from attnscope.schema import Span

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "SRCROOT"


def to_sarif(obj: object) -> str:
    """The log of one report or of several; a target that could not be checked is a notification."""
    if not isinstance(obj, Report | Survey):
        raise TypeError(f"no SARIF is defined for {type(obj).__name__}")
    targets = obj.targets if isinstance(obj, Survey) else (obj,)
    findings = [finding for one in targets if isinstance(one, Report) for finding in one.findings]
    unchecked = [one for one in targets if isinstance(one, Unchecked)]
    codes = sorted({finding.code for finding in findings})
    run = {
        "tool": {
            "driver": {
                "name": "attnscope",
                "version": attnscope.__version__,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"uri": Path.cwd().as_uri() + "/"}},
        "invocations": [_invocation(unchecked)],
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(code: str) -> dict[str, Any]:
    page = _page(code)
    if page is None:
        return {"id": code}
    prose = "\n\n".join(" ".join(part.split()) for part in page.meaning.split("\n\n"))
    cure = " ".join(page.cure.split())
    return {
        "id": code,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": prose or page.title},
        "help": {
            "text": f"{prose}\n\n{page.example}\n{cure}",
            "markdown": f"{prose}\n\n```python\n{page.example}```\n\n{cure}\n\n```diff\n{page.change}\n```",
        },
    }


def _page(code: str) -> Explanation | None:
    try:
        return explain(code)
    except UsageError:
        return None


def _invocation(unchecked: Sequence[Unchecked]) -> dict[str, Any]:
    notes = [{"level": "warning", "message": {"text": f"{one.target}: {one.reason}"}} for one in unchecked]
    return {"executionSuccessful": True, **({"toolExecutionNotifications": notes} if notes else {})}


def _result(finding: Diagnostic, rule: int) -> dict[str, Any]:
    said = [finding.message, *finding.notes, *([f"help: {finding.help}"] if finding.help else [])]
    body: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": _text("\n".join(said))},
    }
    location: dict[str, Any] = {}
    if finding.span is not None:
        location["physicalLocation"] = _place(finding.span)
    if finding.label:
        location["message"] = {"text": _text(finding.label)}
    if finding.module:
        location["logicalLocations"] = [{"fullyQualifiedName": _text(finding.module), "kind": "member"}]
    if location:
        body["locations"] = [location]
    if finding.labels:
        body["relatedLocations"] = [
            {"id": number, "physicalLocation": _place(label.span), "message": {"text": _text(label.text)}}
            for number, label in enumerate(finding.labels)
        ]
    return body


def _place(span: Span) -> dict[str, Any]:
    """Columns count characters from 1 and the end is exclusive, as in SARIF."""
    return {
        "artifactLocation": _artifact(span.file),
        "region": {
            "startLine": max(1, span.line),
            "startColumn": max(1, span.column),
            "endLine": max(1, span.end_line),
            "endColumn": max(1, span.end_column),
        },
    }


def _artifact(file: str) -> dict[str, str]:
    """A path below the working directory is relative to it."""
    from urllib.parse import quote

    short = short_path(file)
    if os.path.isabs(short):
        return {"uri": Path(short).as_uri()}
    return {"uri": quote(Path(short).as_posix()), "uriBaseId": ROOT}


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
