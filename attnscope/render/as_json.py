"""JSON, version 1: the same facts as the drawings, in full precision, for programs.

Non-finite numbers are the strings `"-inf"`, `"inf"`, `"nan"`; lone surrogates are written as escapes inside
the text (`\\\\udc80`), for they are no Unicode; the document is ASCII, so that it passes any stream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.codebook import Explanation
from attnscope.comparison import Comparison
from attnscope.diagnostic import Diagnostic, Report
from attnscope.schema import (
    Arrangement,
    Attention,
    LayerInfo,
    Mask,
    MaskOrigin,
    ModelInfo,
    Output,
    Pooled,
    Reshaping,
    Span,
    Step,
    TensorInfo,
    Token,
    Trace,
)

SCHEMA = "attnscope/1"


def to_json(obj: object, command: str | None = None) -> dict[str, Any]:
    """The object as a tree of plain dicts, lists, strings and numbers.

    `obj` is a Trace, Mask, Report, Diagnostic, or a sequence of Token, LayerInfo or Diagnostic; `command` is
    what the user ran (by default the command whose result `obj` is).
    """
    name, body = _body(obj)
    return {"schema": SCHEMA, "command": command or name, **body}


def dumps(obj: object, command: str | None = None) -> str:
    """`to_json` as text: strict JSON, ASCII, one object and a line end."""
    return (
        json.dumps(to_json(obj, command), allow_nan=False, ensure_ascii=True, separators=(", ", ": ")) + "\n"
    )


def _body(obj: object) -> tuple[str, dict[str, Any]]:
    if isinstance(obj, Comparison):
        from attnscope.render.compare_json import comparison_body

        return "compare", comparison_body(obj)
    if isinstance(obj, Trace):
        return "trace", trace_body(obj)
    if isinstance(obj, Mask):
        body = {
            "kind": _plain(obj.kind),
            "parameters": _plain(obj.parameters),
            "allowed": obj.allowed.tolist(),
            "torch": _plain(obj.torch_lines),
        }
        return "mask", body
    if isinstance(obj, Reshaping):
        return "reshape", _reshaping(obj)
    if isinstance(obj, Explanation):
        return "explain", _explanation(obj)
    if isinstance(obj, Report):
        return "check", _report(obj)
    if isinstance(obj, Diagnostic):
        return "check", {"findings": [_finding(obj)]}
    if isinstance(obj, Sequence) and not isinstance(obj, str | bytes):
        if all(isinstance(item, Token) for item in obj):
            return "tokens", {"tokens": [_token(item) for item in obj]}
        if all(isinstance(item, LayerInfo) for item in obj):
            return "layers", {"layers": [_layer(item) for item in obj]}
        if all(isinstance(item, Explanation) for item in obj):
            return "explain", {"codes": [_explanation(item) for item in obj]}
        if all(isinstance(item, Diagnostic) for item in obj):
            return "check", {"findings": [_finding(item) for item in obj]}
    raise TypeError(f"no JSON is defined for {type(obj).__name__}")


def trace_body(trace: Trace) -> dict[str, Any]:
    """The fields of `trace`; also those of the trace inside a report."""
    return {
        "tokens": [_token(token) for token in trace.tokens],
        "model": _model(trace.model),
        "embedding": _plain(trace.embedding),
        "steps": [_step(step) for step in trace.steps],
        "attention": [_attention(one) for one in trace.attention],
        "output": _output(trace.output),
        "findings": [_finding(finding) for finding in trace.findings],
        "notes": _plain(trace.notes),
    }


def _reshaping(obj: Reshaping) -> dict[str, Any]:
    steps = [
        {
            "text": _plain(step.text),
            "op": step.op,
            "memory": step.memory,
            "outputs": [_arrangement(one) for one in step.outputs],
            "error": _plain(step.error),
            "cures": list(step.cures),
        }
        for step in obj.steps
    ]
    return {
        "chain": _plain(obj.chain),
        "shape": list(obj.shape),
        "input": _arrangement(obj.input),
        "steps": steps,
    }


def _arrangement(one: Arrangement) -> dict[str, Any]:
    return {
        "shape": list(one.shape),
        "stride": list(one.strides),
        "offset": one.offset,
        "contiguous": one.contiguous,
        "numbers": one.numbers.tolist(),
        "memory": one.memory.tolist(),
    }


def _token(token: Token) -> dict[str, Any]:
    return {"index": token.index, "id": token.id, "piece": _plain(token.piece), "bytes": token.raw.hex()}


def _layer(layer: LayerInfo) -> dict[str, Any]:
    return {
        "name": layer.name,
        "title": _plain(layer.title),
        "source": _plain(layer.source),
        "options": list(layer.options),
        "parameters": [{"name": name, "shape": shape} for name, shape in layer.parameters],
        "steps": _plain(layer.steps),
    }


def _model(model: ModelInfo | None) -> dict[str, Any] | None:
    if model is None:
        return None
    return {
        "layer": _plain(model.layer),
        "target": _plain(model.target),
        "config": _plain(model.config),
        "seed": model.seed,
        "weights": _plain(model.weights),
        "parameters": model.parameters,
        "guesses": _plain(model.guesses),
    }


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {
        "shape": list(info.shape),
        "axes": _plain(info.axes),
        "dtype": info.dtype,
        "stride": list(info.stride),
        "contiguous": info.contiguous,
        "device": info.device,
    }


def _step(step: Step) -> dict[str, Any]:
    body: dict[str, Any] = {
        "index": step.index,
        "module": _plain(step.module),
        "op": _plain(step.op),
        "detail": _plain(step.detail),
        "variable": _plain(step.variable),
        "file": _plain(step.file),
        "line": step.line,
        "span": _span(step.span),
        "inputs": [_tensor(info) for info in step.inputs],
        "outputs": [_tensor(info) for info in step.outputs],
        "memory": step.memory,
        "noncontiguous_since": step.noncontiguous_since,
        "inner": step.inner,
        "error": _plain(step.error),
    }
    if step.values is not None:
        body["values"] = [None if values is None else array_list(values) for values in step.values]
    return body


def _attention(one: Attention) -> dict[str, Any]:
    heads: list[dict[str, Any]] = []
    for head in range(one.heads):
        entry: dict[str, Any] = {"head": head}
        entry["weights"] = None if one.weights is None else array_list(one.weights[:, head])
        if one.scores is not None:
            entry["scores"] = array_list(one.scores[:, head])
        heads.append(entry)
    body: dict[str, Any] = {
        "module": _plain(one.module),
        "source": one.source,
        "step": one.step,
        "shape": list(one.shape),
        "mask": None if one.mask is None else one.mask.tolist(),
        "mask_origin": _origin(one.mask_origin),
        "heads": heads,
    }
    if one.pooled is not None:
        body["pooled"] = _pooled(one.pooled)
    if one.note:
        body["note"] = _plain(one.note)
    return body


def _pooled(pooled: Pooled) -> dict[str, Any]:
    return {
        "factor": list(pooled.factor),
        "weights": array_list(pooled.weights),
        "top_keys": pooled.top_keys.tolist(),
        "top_weights": array_list(pooled.top_weights),
    }


def _origin(origin: MaskOrigin) -> dict[str, Any]:
    return {
        "kind": origin.kind,
        "name": _plain(origin.name),
        "file": _plain(origin.file),
        "line": origin.line,
    }


def _output(output: Output | None) -> dict[str, Any] | None:
    if output is None:
        return None
    values = None if output.values is None else array_list(output.values)
    return {**_tensor(output.info), "values": values}


def _span(span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    return {
        "file": _plain(span.file),
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def _finding(finding: Diagnostic) -> dict[str, Any]:
    body: dict[str, Any] = {
        "code": finding.code,
        "severity": finding.severity,
        "message": _plain(finding.message),
        "span": _span(finding.span),
        "label": _plain(finding.label),
        "labels": [{"span": _span(label.span), "text": _plain(label.text)} for label in finding.labels],
        "notes": _plain(finding.notes),
        "help": _plain(finding.help),
    }
    if finding.evidence:
        body["evidence"] = _plain(finding.evidence)
    if finding.module:
        body["module"] = _plain(finding.module)
    return body


def _explanation(one: Explanation) -> dict[str, Any]:
    return {
        "code": one.code,
        "title": _plain(one.title),
        "meaning": _plain(one.meaning),
        "example": _plain(one.example),
        "cure": _plain(one.cure),
    }


def _report(report: Report) -> dict[str, Any]:
    body: dict[str, Any] = {
        "target": _plain(report.target),
        "failed": report.failed,
        "complete": report.complete,
        "findings": [_finding(finding) for finding in report.findings],
        "tried": [
            {
                "name": _plain(tried.name),
                "result": _plain(tried.result),
                "held": tried.held,
                "module": _plain(tried.module),
                "status": tried.status,
            }
            for tried in report.tried
        ],
        "model": _model(report.model),
        "notes": _plain(report.notes),
        "trace": None if report.trace is None else trace_body(report.trace),
    }
    # What a caller adds may not hide a field of the schema.
    for key, value in report.extra.items():
        body.setdefault(_text(str(key)), _plain(value))
    return body


def array_list(array: NDArray[Any]) -> Any:
    """Nested lists of an array. A float32 becomes the double that equals it: it reads back exactly."""
    if array.dtype.kind in "biu":
        return array.tolist()
    if array.dtype.kind == "f":
        if np.isfinite(array).all():
            return array.tolist()
        return _named(array.tolist())
    return _plain(array.tolist())


def _named(values: Any) -> Any:
    if isinstance(values, list):
        return [_named(value) for value in values]
    return _number(values)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def _plain(value: Any) -> Any:
    """Any value as JSON has it; what JSON has no form for becomes its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(float(value))
    if isinstance(value, np.ndarray):
        return array_list(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, Mapping):
        return {_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return _text(str(value))


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
