"""`attnscope/data/attnscope-1.schema.json` describes the JSON of every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import attnscope
from attnscope.cli.app import COMMANDS
from tests.cli.cli_process import process

Cli = Callable[..., Any]
ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(
    (Path(attnscope.__file__).parent / "data" / "attnscope-1.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

LINES = [
    ("trace", "one step"),
    ("trace", "one step", "--scores", "--values", "--inner", "--layer", "stacked"),
    ("trace", "one step", "--show", "weights", "--depth", "2"),
    ("trace", "one step", "--module", "samples/nanogpt_bug.py"),
    ("trace", "--module", "torch.nn:MultiheadAttention", "--arg", "num_heads=2"),
    ("reshape", "view(6, 2, 8).transpose(0, 1)", "--shape", "6,16"),
    ("reshape", "transpose(0, 1).view(6, 4)", "--shape", "6,4"),
    ("mask", "--len", "4", "--kind", "sliding", "--window", "2"),
    ("tokens", "one \udcff step"),
    ("layers",),
    ("check", "samples/as208_scale.py", "--select", "AS208"),
    ("check", "samples/as208_scale.py", "causal", "--select", "AS208"),
    ("compare", "stacked", "multihead"),
    ("compare", "causal", "multihead"),
    ("explain",),
    ("explain", "AS101"),
]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["command"]["enum"] == [line["then"]["$ref"][8:] for line in SCHEMA["allOf"]]
    assert set(SCHEMA["properties"]["command"]["enum"]) == set(COMMANDS)
    assert {line[0] for line in LINES} | {"run"} == set(COMMANDS)


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_what_a_command_says_is_as_described(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    monkeypatch.chdir(ROOT)
    result = cli(*line, "--format", "json")
    assert result.code in (0, 1), result.err
    VALIDATOR.validate(result.json)


def test_what_run_writes_is_as_described(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    ran = process("run", "--output", str(file), str(ROOT / "samples" / "train.py"))
    assert ran.returncode == 1
    VALIDATOR.validate(json.loads(file.read_text(encoding="utf-8")))


def test_a_field_more_or_less_is_seen(cli: Cli) -> None:
    body = cli("mask", "--len", "3", "--format", "json").json
    for wrong in ({**body, "more": 1}, {key: body[key] for key in body if key != "allowed"}):
        assert not VALIDATOR.is_valid(wrong)
