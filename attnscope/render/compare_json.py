"""A comparison as JSON: the fields of `Comparison`, with both traces."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from attnscope.comparison import ComparedSide, Comparison


def comparison_body(found: Comparison) -> dict[str, Any]:
    """The object that `attnscope compare --format json` prints, without `schema` and `command`."""
    from attnscope.render.as_json import _finding, _plain

    body: dict[str, Any] = {
        "equal": found.equal,
        "largest": found.largest,
        "tolerance": found.tolerance,
        "a": _side(found.a),
        "b": _side(found.b),
        "findings": [_finding(finding) for finding in found.findings],
        "moved": [
            {"target": m.target, "sources": m.sources, "how": m.how, "shape": m.shape} for m in found.moved
        ],
        "neutral": [asdict(n) for n in found.neutral],
        "not_moved": [asdict(left) for left in found.left],
        "layout": found.layout,
        "runs": [
            {
                "name": run.name,
                "result": run.result,
                "held": run.held,
                "largest": run.largest,
                "tolerance": run.tolerance,
                "where": run.where,
            }
            for run in found.runs
        ],
        "pairs": [asdict(pair) for pair in found.pairs],
        "parting": None if found.parting is None else asdict(found.parting),
        "notes": found.notes,
    }
    traces = {key: body[key].pop("trace") for key in ("a", "b")}
    findings = body.pop("findings")
    plain: dict[str, Any] = _plain(body)
    for key, trace in traces.items():
        plain[key]["trace"] = trace
    plain["findings"] = findings
    return plain


def _side(side: ComparedSide) -> dict[str, Any]:
    from attnscope.render.as_json import _model, trace_body

    return {
        "name": side.name,
        "model": _model(side.model),
        "parameters": side.parameters,
        "buffers": side.buffers,
        "operations": side.operations,
        "raised": side.raised,
        "trace": None if side.trace is None else trace_body(side.trace),
    }
