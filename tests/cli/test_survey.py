"""`check` of several targets: files, folders, what cannot be checked; and its formats for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from attnscope.diagnostic import Diagnostic, Label, Report, Survey, Unchecked
from attnscope.render.formats import FORMATS, Format
from attnscope.render.github import to_github
from attnscope.render.sarif import to_sarif
from attnscope.render.show import object_lines
from attnscope.render.terminal import Style
from attnscope.schema import Span

Cli = Callable[..., Any]

MODULES = """
import torch
from torch import nn


class GoodAttention(nn.Module):
    def __init__(self, d_model=16, n_head=2):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(d_model, 3 * d_model)

    def scores(self, q, k):
        return q @ k.mT / q.shape[-1] ** 0.5

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (u.view(b, t, self.n_head, -1).transpose(1, 2) for u in self.qkv(x).chunk(3, -1))
        late = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        scores = self.scores(q, k).masked_fill(late, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class BadAttention(GoodAttention):
    def scores(self, q, k):
        return q @ k.mT


class OddAttention(nn.Module):
    def __init__(self, thing):
        super().__init__()
        self.size = thing["size"].value
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "old").mkdir(parents=True)
    (tmp_path / "models" / "attn.py").write_text(MODULES)
    (tmp_path / "models" / "plain.py").write_text("raise SystemExit('never run')\n")
    (tmp_path / "models" / "old" / "broken.py").write_text("class Attention(\n")
    (tmp_path / "models" / ".venv").mkdir()
    (tmp_path / "models" / ".venv" / "attn.py").write_text(MODULES)
    return tmp_path


def test_all_classes_of_a_file_are_checked(cli: Cli, folder: Path) -> None:
    result = cli("check", "models/attn.py", "--select", "AS2")
    assert (result.code, result.err) == (1, "")
    *_, good, bad, odd = (line for line in result.out.splitlines() if line.startswith(("  ✓", "  ✗", "  ?")))
    assert good.split() == ["✓", "models/attn.py:GoodAttention", "no", "fault", "found"]
    assert bad.split() == ["✗", "models/attn.py:BadAttention", "1", "error", "AS208"]
    assert odd.split() == ["?", "models/attn.py:OddAttention", "not", "checked"]
    assert "checked  3 targets, 1 with errors, 1 not checked" in result.out
    assert result.out.count("error[") == 1 and "--arg" in result.out


def test_a_folder_and_a_layer_in_json(cli: Cli, folder: Path) -> None:
    body = cli("check", "models", "causal", "--format", "json", "--select", "AS208").json
    assert (body["schema"], body["command"]) == ("attnscope/1", "check")
    assert (body["failed"], body["complete"]) == (True, False)
    targets = {one["target"]: one for one in body["targets"]}
    names = ["GoodAttention", "BadAttention", "OddAttention"]
    assert list(targets) == [*(f"models/attn.py:{name}" for name in names), "causal"]
    assert [one["code"] for one in targets["models/attn.py:BadAttention"]["findings"]] == ["AS208"]
    assert set(targets["models/attn.py:OddAttention"]) == {"target", "not_checked"}
    assert targets["causal"]["findings"] == []


def test_what_was_named_must_be_checked(cli: Cli, folder: Path) -> None:
    """But a fault that was found is told all the same."""
    odd, bad = "models/attn.py:OddAttention", "models/attn.py:BadAttention"
    result = cli("check", "causal", odd, "--select", "AS208")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"attnscope check: error: {odd}: `OddAttention` raises")
    assert result.err.count("\n") == 1
    both = cli("check", bad, odd, "--select", "AS208")
    assert (both.code, both.err) == (1, "") and "not checked" in both.out


def test_nothing_runs_where_a_name_is_wrong(cli: Cli, folder: Path) -> None:
    for target in ("models/atn.py", "models/atn.py:Attention"):
        result = cli("check", "models/attn.py", target)
        assert (result.code, result.out) == (2, "")
        assert "there is no file `models/atn.py`; did you mean" in result.err
    assert "no class below `models/old` looks like attention" in cli("check", "models/old").err


# --- formats --------------------------------------------------------------------------------------------

FINDINGS = (
    Diagnostic(
        "AS208",
        "error",
        "scores, 100% too large",
        Span("models/a,b:c.py", 3, 5, 3, 9),
        "here",
        (Label(Span("/elsewhere/é x.py", 1, 1, 2, 4), "made here"),),
        ("first\nsecond",),
        "divide",
        module="blocks.7.attn",
    ),
    Diagnostic("AS216", "warning", "no gradient", Span("a.py", 2, 1, 4, 3)),
    Diagnostic("AS201", "note", "nowhere \udc80"),
)
SURVEY = Survey((Report("a.py", FINDINGS), Unchecked("b.py", "no such thing\n::error::x")))


def test_workflow_commands_escape_what_would_end_them() -> None:
    assert to_github(SURVEY).splitlines() == [
        "::error file=models/a%2Cb%3Ac.py,line=3,col=5,endColumn=9,title=AS208::scores, 100%25 too large in "
        "`blocks.7.attn`%0Ahere%0Anote: first%0Asecond%0Ahelp: divide",
        "::warning file=a.py,line=2,endLine=4,title=AS216::no gradient",
        "::notice title=AS201::nowhere \\udc80",
        "::warning title=not checked::b.py: no such thing%0A::error::x",
    ]
    assert to_github(Report("a.py", ())) == ""


REGION = {
    "type": "object",
    "properties": {name: {"type": "integer", "minimum": 1} for name in ("startLine", "endLine")},
    "required": ["startLine", "startColumn", "endLine", "endColumn"],
}
PLACE = {
    "type": "object",
    "properties": {
        "artifactLocation": {
            "type": "object",
            "properties": {"uri": {"type": "string", "pattern": "^[!-~]+$"}},
        },
        "region": REGION,
    },
    "required": ["artifactLocation", "region"],
}
TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
RESULT = {
    "type": "object",
    "properties": {
        "message": TEXT,
        "level": {"enum": ["none", "note", "warning", "error"]},
        "locations": {"type": "array", "items": {"properties": {"physicalLocation": PLACE}}},
        "relatedLocations": {"type": "array", "items": {"properties": {"physicalLocation": PLACE}}},
    },
    "required": ["message", "ruleId", "ruleIndex", "level"],
}
RULE = {"type": "object", "properties": {"help": TEXT, "fullDescription": TEXT}, "required": ["id"]}
LOG = {
    "type": "object",
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "minItems": 1,
            "items": {
                "properties": {
                    "tool": {
                        "properties": {
                            "driver": {
                                "properties": {
                                    "rules": {"type": "array", "items": RULE, "uniqueItems": True}
                                },
                                "required": ["name", "version", "rules"],
                            }
                        },
                        "required": ["driver"],
                    },
                    "results": {"type": "array", "items": RESULT},
                },
                "required": ["tool", "results", "invocations"],
            },
        },
    },
    "required": ["$schema", "version", "runs"],
}


def test_sarif_has_what_the_standard_requires() -> None:
    log = json.loads(to_sarif(SURVEY))
    jsonschema.validate(log, LOG)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result, finding in zip(run["results"], FINDINGS, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        assert result["level"] == finding.severity
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "models/a%2Cb%3Ac.py", "uriBaseId": "SRCROOT"}
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 9}
    related = run["results"][0]["relatedLocations"][0]["physicalLocation"]["artifactLocation"]
    assert related == {"uri": "file:///elsewhere/%C3%A9%20x.py"}
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("b.py: no such thing")
    assert json.loads(to_sarif(Report("a.py", ())))["runs"][0]["results"] == []


def test_formats_on_the_command_line(cli: Cli, folder: Path) -> None:
    bad = ("check", "models/attn.py:BadAttention", "--select", "AS208")
    github = cli(*bad, "--format", "github")
    assert github.code == 1 and github.out.startswith("::error file=models/attn.py,line=")
    assert cli(*bad, "-o", "faults.sarif").out == ""
    assert json.loads((folder / "faults.sarif").read_text()) == json.loads(cli(*bad, "--format", "sarif").out)
    for args in (("mask", "--len", "3", "-o", "x.sarif"), ("layers", "--format", "github")):
        assert cli(*args).code == 2
    assert "--width has no use for SARIF" in cli(*bad, "--format", "sarif", "--width", "80").err


def to_count(obj: object) -> str:
    return f"{len(obj.targets) if isinstance(obj, Survey) else 1}\n"


def test_a_new_format_is_a_renderer_and_a_row(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Format("a count", (".count",), f"{__name__}:to_count", ("check",))
    monkeypatch.setitem(FORMATS, "count", row)
    args = ("check", "causal", "stacked", "--select", "AS208")
    assert cli(*args, "--format", "count").out == "2\n"
    assert cli(*args, "-o", "x.count").code == 0 and (folder / "x.count").read_text() == "2\n"
    assert "--width has no use for a count" in cli(*args, "--format", "count", "--width", "80").err
    assert "unknown format `count`" in cli("layers", "--format", "count").err


@pytest.mark.lenient
def test_a_fault_of_our_own_hides_no_other_target(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnscope.cli import check

    whole = check._checked

    def broken(target: str, *args: Any) -> Report:
        if "Good" in target:
            raise RuntimeError("first\nsecond")
        return whole(target, *args)

    monkeypatch.setattr(check, "_checked", broken)
    result = cli("check", "models/attn.py", "--select", "AS208")
    assert result.code == 1
    assert "internal error: RuntimeError: first; please report it" in result.out
    assert "BadAttention   1 error" in result.out


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_table_fits_its_width(width: int) -> None:
    survey = Survey((Report("a/very/long/path/to/some/module.py:WithALongClassName", ()), *SURVEY.targets))
    for style in (Style(width), Style(width, unicode=False)):
        lines = object_lines(style, survey)
        assert max(line.cell_len for line in lines) <= width
        assert style.unicode or all(line.plain.isascii() for line in lines)
