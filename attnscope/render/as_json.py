"""JSON, version 1: the same facts as the drawings, in full precision, for programs.

A dataclass becomes an object of its fields; `_KEYS` has those that are written otherwise. Non-finite numbers
are the strings `"-inf"`, `"inf"`, `"nan"`; lone surrogates are written as escapes inside the text
(`\\\\udc80`), for they are no Unicode; the document is ASCII, so that it passes any stream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope import comparison, diagnostic, schema
from attnscope.codebook import Explanation

SCHEMA = "attnscope/1"

# What is no plain object of its fields in their order. `key=field` renames; a key with `?` is left out when
# there is nothing to say; a field that is not named is not written.
_KEYS: dict[type, str] = {
    schema.Token: "index id piece bytes=raw",
    schema.Step: "index module op detail variable file line span inputs outputs memory noncontiguous_since"
    " inner error values?",
    schema.Pooled: "factor weights top_keys top_weights",
    schema.Trace: "tokens model embedding steps attention output findings notes",
    schema.Mask: "kind parameters allowed torch=torch_lines",
    schema.Arrangement: "shape stride=strides offset contiguous numbers memory",
    schema.ReshapeStep: "text op memory outputs error cures",
    Explanation: "code title meaning example cure change",
    diagnostic.Diagnostic: "code severity message span label labels notes help evidence? module?",
    diagnostic.Report: "target failed complete findings tried model notes trace",
    diagnostic.Survey: "failed complete targets",
    diagnostic.Unchecked: "target not_checked=reason",
    comparison.ComparedSide: "name model parameters buffers operations raised trace",
    comparison.Comparison: "equal largest tolerance a b moved neutral not_moved=left layout runs pairs"
    " parting notes findings",
}
# Whose result an object is, and the key that a sequence of such objects has.
_COMMANDS: dict[type, tuple[str, str]] = {
    schema.Token: ("tokens", "tokens"),
    schema.LayerInfo: ("layers", "layers"),
    Explanation: ("explain", "codes"),
    diagnostic.Diagnostic: ("check", "findings"),
    diagnostic.Report: ("check", ""),
    diagnostic.Survey: ("check", ""),
    comparison.Comparison: ("compare", ""),
    schema.Trace: ("trace", ""),
    schema.Mask: ("mask", ""),
    schema.Reshaping: ("reshape", ""),
}


def to_json(obj: object, command: str | None = None) -> dict[str, Any]:
    """The object as a tree of plain dicts, lists, strings and numbers.

    `obj` is what a command prints, or a sequence of Token, LayerInfo, Explanation or Diagnostic; `command` is
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
    kind = type(obj)
    if kind in _COMMANDS and kind not in (schema.Token, schema.LayerInfo):
        name, key = _COMMANDS[kind]
        alone = key and kind is not Explanation
        return name, {key: [_plain(obj)]} if alone else _plain(obj)
    if isinstance(obj, Sequence) and not isinstance(obj, str | bytes):
        for kind, (name, key) in _COMMANDS.items():
            if key and all(isinstance(item, kind) for item in obj):
                return name, {key: _plain(obj)}
    raise TypeError(f"no JSON is defined for {type(obj).__name__}")


@cache
def _keys(kind: type) -> tuple[tuple[str, str, bool], ...] | None:
    """(key, field, left out when empty) of one of attnscope's dataclasses; None for any other class."""
    if not is_dataclass(kind) or not kind.__module__.startswith("attnscope."):
        return None
    for base in kind.__mro__:
        if base in _KEYS:
            pairs = [word.rstrip("?").partition("=") for word in _KEYS[base].split()]
            optional = [word.endswith("?") for word in _KEYS[base].split()]
            return tuple((key, field or key, no) for (key, _, field), no in zip(pairs, optional, strict=True))
    return tuple((field.name, field.name, False) for field in fields(kind))


def _object(value: Any, keys: Sequence[tuple[str, str, bool]]) -> dict[str, Any]:
    out = {}
    for key, field, optional in keys:
        found = getattr(value, field)
        if not (optional and (found is None or len(found) == 0)):
            out[key] = _plain(found)
    return out


def _attention(one: schema.Attention) -> dict[str, Any]:
    """Weights and scores [B, H, T, S] are written by head."""
    heads: list[dict[str, Any]] = []
    for head in range(one.heads):
        entry: dict[str, Any] = {"head": head}
        entry["weights"] = None if one.weights is None else array_list(one.weights[:, head])
        if one.scores is not None:
            entry["scores"] = array_list(one.scores[:, head])
        heads.append(entry)
    names = ("module", "source", "step", "shape", "mask", "mask_origin")
    body = {name: _plain(getattr(one, name)) for name in names}
    body["heads"] = heads
    more = {"pooled": one.pooled, "note": one.note}
    return body | {name: _plain(value) for name, value in more.items() if value}


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
    kind: type = type(value)
    keys = _keys(kind)
    if keys is not None:
        return _dataclass(value, keys)
    if isinstance(value, np.ndarray):
        return array_list(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, Mapping):
        return {_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return _text(value.hex() if isinstance(value, bytes) else str(value))


def _dataclass(value: Any, keys: Sequence[tuple[str, str, bool]]) -> dict[str, Any]:
    if isinstance(value, schema.Attention):
        return _attention(value)
    if isinstance(value, schema.Output):
        return {**_plain(value.info), "values": _plain(value.values)}
    if isinstance(value, schema.LayerInfo):
        named = [{"name": name, "shape": shape} for name, shape in value.parameters]
        return {**_object(value, keys), "parameters": _plain(named)}
    body = _object(value, keys)
    if isinstance(value, diagnostic.Report):
        # What a caller adds may not hide a field of the schema.
        for key, more in value.extra.items():
            body.setdefault(_text(str(key)), _plain(more))
    return body


def array_list(array: NDArray[Any]) -> Any:
    """Nested lists of an array. A float32 becomes the double that equals it: it reads back exactly."""
    if array.dtype.kind in "biu" or (array.dtype.kind == "f" and np.isfinite(array).all()):
        return array.tolist()
    return _plain(array.tolist())


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "nan" if value != value else "inf" if value > 0 else "-inf"


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
