"""Files: JSON that reads back, SVG that is XML and loads nothing, files that are whole."""

from __future__ import annotations

import dataclasses
import json
import os
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnscope.errors import UsageError
from attnscope.pooling import pool
from attnscope.render import as_json, page, save, show
from attnscope.render.terminal import Style
from attnscope.render.tokens import draw_tokens
from tests.render import made
from tests.render.test_lines import HOSTILE, hostile_trace


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_trace_as_json_has_the_fields_of_version_1() -> None:
    body = strict(as_json.dumps(made.trace()))
    assert body["schema"] == "attnscope/1"
    assert body["command"] == "trace"
    assert set(body["tokens"][0]) == {"index", "id", "piece", "bytes"}
    assert set(body["model"]) >= {"layer", "target", "config", "seed", "weights"}
    assert set(body["steps"][0]) >= {
        "index", "module", "op", "detail", "variable", "file", "line", "inputs", "outputs", "memory",
    }  # fmt: skip
    assert set(body["steps"][0]["outputs"][0]) >= {"shape", "axes", "dtype", "stride", "contiguous"}
    assert set(body["attention"][0]) >= {"module", "source", "mask", "heads"}
    assert body["output"] == {
        "shape": [1, 6, 16], "axes": ["B", "T", "C"], "dtype": "float32", "stride": [96, 16, 1],
        "contiguous": True, "device": "cpu", "values": None,
    }  # fmt: skip
    assert body["tokens"][1]["bytes"] == b" journey".hex()


def test_weights_read_back_exactly() -> None:
    one = made.attention(batch=2)
    assert one.weights is not None
    body = strict(as_json.dumps(made.trace([], [one])))
    heads = body["attention"][0]["heads"]
    got = np.array([head["weights"] for head in heads], np.float32).swapaxes(0, 1)
    np.testing.assert_array_equal(got, one.weights)
    np.testing.assert_array_equal(body["attention"][0]["mask"], one.mask)


def test_non_finite_numbers_are_strings() -> None:
    scores = np.array([[[[0.5, -np.inf], [np.nan, np.inf]]]], np.float32)
    one = dataclasses.replace(made.attention(heads=1, queries=2), scores=scores)
    body = strict(as_json.dumps(made.trace([], [one])))
    assert body["attention"][0]["heads"][0]["scores"] == [[[0.5, "-inf"], ["nan", "inf"]]]
    config = made.model(
        config={"p": float("nan"), "size": np.int64(3), "dtype": object, "n": None, "t": (1, 2)}
    )
    body = strict(as_json.dumps(dataclasses.replace(made.trace([], []), model=config)))
    assert body["model"]["config"]["p"] == "nan"
    assert body["model"]["config"]["size"] == 3
    assert body["model"]["config"]["t"] == [1, 2]


def test_pooled_weights_alone() -> None:
    whole = made.attention(queries=16)
    assert whole.weights is not None
    one = dataclasses.replace(whole, weights=None, pooled=pool(whole.weights, 4, 4, 2))
    body = strict(as_json.dumps(made.trace([], [one])))["attention"][0]
    assert body["heads"] == [{"head": 0, "weights": None}, {"head": 1, "weights": None}]
    assert body["pooled"]["factor"] == [4, 4]


def test_surrogates_leave_a_document_of_plain_ascii() -> None:
    text = as_json.dumps(made.tokens(["\ud83d", "日"]))
    assert text.isascii()
    body = strict(text)
    assert [token["piece"] for token in body["tokens"]] == ["\\ud83d", "日"]
    json.dumps(body, ensure_ascii=False).encode("utf-8")


def test_the_other_objects() -> None:
    body = strict(as_json.dumps(made.mask(2, 3)))
    assert body["command"] == "mask"
    assert body["allowed"] == [[True, True, False], [True, True, True]]
    body = strict(as_json.dumps(made.LAYERS))
    assert body["layers"][0]["name"] == "causal"
    body = strict(as_json.dumps(made.report(), "run"))
    assert body["command"] == "run"
    assert body["failed"] is False
    assert body["findings"][0]["span"] == {
        "file": "attention.py", "line": 20, "column": 15, "end_line": 20, "end_column": 34,
    }  # fmt: skip
    report = dataclasses.replace(made.report(), trace=made.trace([], []), extra={"target": "no", "exit": 1})
    body = strict(as_json.dumps(report))
    assert body["target"] == "attention.py:CausalAttention"
    assert body["exit"] == 1
    assert body["trace"]["steps"] == []
    with pytest.raises(TypeError, match="no JSON"):
        as_json.to_json(3)


def test_svg_is_xml_and_loads_nothing() -> None:
    style = Style(80, color=True, heat=True)
    for lines in (hostile_trace(HOSTILE)(style), show.trace_lines(style, made.trace())):
        svg = page.to_svg(lines, HOSTILE)
        root = ET.fromstring(svg.encode("utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "href" not in svg
        assert "url(" not in svg
        assert "<script" not in svg
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"shapes", "softmax", "0.80"} <= {word.strip() for word in words if word} | {
        part for word in words if word for part in word.split()
    }


def test_html_is_escaped() -> None:
    class Tags(HTMLParser):
        seen: list[str] = []  # noqa: RUF012
        words: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.seen.append(tag)

        def handle_data(self, data: str) -> None:
            self.words.append(data)

    tags = Tags()
    tags.feed(
        page.to_html(draw_tokens(Style(80, color=True), made.tokens(["<script>alert(1)</script>", "&lt;"])))
    )
    assert set(tags.seen) == {"html", "head", "meta", "title", "body", "pre", "span"}
    assert "<script>alert(1)</script>" in "".join(tags.words)
    assert "&lt;" in "".join(tags.words)


@pytest.mark.parametrize("suffix", save.SUFFIXES)
def test_each_suffix_is_written(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{suffix.upper() if suffix == '.txt' else suffix}"
    save.write(path, made.mask(4))
    text = path.read_text("utf-8")
    assert {".json": '"allowed"', ".svg": "<svg", ".html": "<pre", ".txt": "query 0  ■ · · ·"}[suffix] in text
    assert "\x1b" not in text
    assert os.listdir(tmp_path) == [path.name]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("out.png", "cannot tell from the name"),
        ("out", "cannot tell from the name"),
        ("gone/out.json", "does not exist"),
        ("dir.json", "is a directory"),
    ],
)
def test_a_path_that_cannot_be_written_is_a_usage_error(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "dir.json").mkdir()
    with pytest.raises(UsageError, match=said):
        save.write(tmp_path / name, made.mask(4))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UsageError, match="No space left"):
        save.write(path, made.mask(4))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_the_mode_of_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    path.chmod(0o640)
    save.write(path, made.mask(4))
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_notebook_gets_a_block() -> None:
    block = save.html_block(made.trace())
    assert block.startswith("<pre")
    assert block.endswith("</pre>")
    assert "[" not in block.split("shapes")[0].split("<pre")[0]
