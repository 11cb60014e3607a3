"""What the commands print: against numbers that are known, and against each other."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnscope
from attnscope.cli.app import COMMANDS, EXAMPLES
from attnscope.layers import LAYERS
from attnscope.layers.stack import build_model
from tests.book import INPUTS, OUTPUTS
from tests.cli.cli_process import process

Cli = Callable[..., Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def inputs(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.array(INPUTS, dtype=np.float32))
    return str(tmp_path / "x.npy")


def every_example() -> list[str]:
    commands = [import_module(f"attnscope.cli.{name}") for name in COMMANDS]
    return list(dict.fromkeys([*EXAMPLES, *(example for one in commands for example in one.EXAMPLES)]))


@pytest.mark.parametrize("example", every_example())
def test_the_examples_of_the_help_work_as_printed(
    cli: Cli, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the project's folder, where the samples lie. A fault that is found in one is no failure."""
    monkeypatch.chdir(ROOT)
    program, *args = shlex.split(example)
    assert program == "attnscope"
    if args[0] == "run":  # a script takes over the streams of its process
        done = process(*args)
        assert done.returncode in (0, 1), done.stderr
        assert b"internal error" not in done.stderr
        assert done.stdout or done.returncode == 1
        return
    result = cli(*args)
    assert result.code in (0, 1), result.err
    assert result.out


def test_bare_call_prints_help(cli: Cli) -> None:
    assert cli().out == cli("--help").out


def test_version(cli: Cli) -> None:
    for option in ("--version", "-V"):
        assert cli(option).out == f"attnscope {attnscope.__version__}\n"


# --- trace ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", OUTPUTS)
def test_the_printed_numbers_of_the_book(cli: Cli, inputs: str, layer: str) -> None:
    heads = [] if layer == "causal" else ["--heads", "2"]
    sizes = ["--d-out", "2", "--seed", "123", "--context", "6"]
    result = cli("trace", "--input", inputs, "--layer", layer, *heads, *sizes, "--format", "json")
    assert result.code == 0, result.err
    body = result.json
    assert (body["schema"], body["command"]) == ("attnscope/1", "trace")
    np.testing.assert_allclose(body["output"]["values"], [OUTPUTS[layer]], atol=5.1e-5)
    weights = np.array([head["weights"] for one in body["attention"] for head in one["heads"]])
    assert weights.shape == (1 if layer == "causal" else 2, 1, 6, 6)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert (weights[..., ~np.tri(6, dtype=bool)] == 0).all()
    assert body["attention"][0]["mask"] == [np.tri(6, dtype=bool).tolist()]


def test_the_default_trace_in_json(cli: Cli) -> None:
    text = "Your journey starts with one step"
    body = cli("trace", text, "--format", "json").json
    ids = [token["id"] for token in body["tokens"]]
    assert ids == [7120, 7002, 4940, 351, 530, 2239]
    assert b"".join(bytes.fromhex(token["bytes"]) for token in body["tokens"]).decode() == text
    assert body["model"]["layer"] == "multihead"
    assert body["model"]["weights"] == "random"
    assert body["model"]["parameters"] == sum(p.numel() for p in build_model("multihead").parameters())
    shapes = [tuple(step["outputs"][0]["shape"]) for step in body["steps"]]
    assert (1, 6, 2, 8) in shapes and (1, 2, 6, 6) in shapes
    assert body["output"]["shape"] == [1, 6, 16]


def test_sections_are_picked(cli: Cli) -> None:
    text = cli("trace", "one step", "--show", "mask").out
    assert "mask  3 of 4 allowed" in text
    assert not any(name in text for name in ("tokens  ", "shapes  ", "weights  "))
    body = cli("trace", "one step", "--show", "weights,tokens", "--format", "json").json
    assert "steps" not in body and "tokens" in body
    assert set(body["attention"][0]) >= {"heads"} and "mask" not in body["attention"][0]
    assert "attention" not in cli("trace", "one step", "--show", "shapes", "--format", "json").json


@pytest.mark.parametrize("layer", ["multihead", "stacked"])
def test_heads_are_picked(cli: Cli, layer: str) -> None:
    args = ("trace", "one step", "--layer", layer, "--heads", "4", "--show", "weights")
    whole = cli(*args, "--format", "json").json["attention"]
    some = cli(*args, "--head", "1", "--head", "3", "--format", "json").json["attention"]
    assert [head["head"] for head in whole[0]["heads"]] == [0, 1, 2, 3]
    assert some[0]["heads"] == [whole[0]["heads"][1], whole[0]["heads"][3]]
    text = cli(*args, "--head", "2").out
    assert "head 2" in text and "head 1" not in text


def test_layers_are_picked(cli: Cli) -> None:
    args = ("trace", "one step", "--depth", "3", "--show", "weights,mask", "--format", "json")
    whole, one = cli(*args).json["attention"], cli(*args, "--layer-index", "2").json["attention"]
    assert len(whole) == 3
    assert one == [whole[2]]


def test_precision(cli: Cli) -> None:
    assert "1.000" in cli("trace", "one step", "--show", "weights", "--precision", "3").out


def test_scores_and_values_in_json(cli: Cli) -> None:
    args = ("trace", "one step", "--format", "json")
    plain, more = cli(*args).json, cli(*args, "--scores", "--values").json
    assert "scores" not in plain["attention"][0]["heads"][0]
    head = more["attention"][0]["heads"][0]
    scores = np.array(head["scores"])
    masked = np.where(np.tri(2, dtype=bool), scores, -np.inf)
    expected = np.exp(masked) / np.exp(masked).sum(-1, keepdims=True)
    np.testing.assert_allclose(head["weights"], expected, atol=1e-6)
    assert all("values" not in step for step in plain["steps"])
    assert more["steps"][-1]["values"][0] == more["output"]["values"]


def test_a_state_dict_takes_the_place_of_random_weights(cli: Cli, inputs: str, tmp_path: Path) -> None:
    options = {"d_model": 3, "d_out": 2, "context_length": 6}
    torch.save(build_model("causal", seed=123, **options).state_dict(), tmp_path / "w.pt")
    args = ("trace", "--input", inputs, "--layer", "causal", "--d-out", "2", "--context", "6")
    result = cli(*args, "--state-dict", str(tmp_path / "w.pt"), "--format", "json").json
    np.testing.assert_allclose(result["output"]["values"], [OUTPUTS["causal"]], atol=5.1e-5)
    assert "w.pt" in result["model"]["weights"]


def test_embeddings_do_not_change_a_layers_weights(cli: Cli) -> None:
    """`--context` draws another position table; weights and output of the same tokens stay."""
    args = ("trace", "one step", "--format", "json", "--show", "weights")
    assert cli(*args).json["output"] == cli(*args, "--context", "8").json["output"]


def test_a_file_and_standard_input_are_texts(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("café\n".encode())
    ids = [
        t["id"] for t in cli("tokens", "--file", str(tmp_path / "t.txt"), "--format", "json").json["tokens"]
    ]
    assert ids == [t["id"] for t in cli("tokens", "café\n", "--format", "json").json["tokens"]]


def test_special_tokens_are_text_unless_asked_for(cli: Cli) -> None:
    args = ("tokens", "<|endoftext|>", "--format", "json")
    assert len(cli(*args).json["tokens"]) > 1
    assert [token["id"] for token in cli(*args, "--special").json["tokens"]] == [50256]


def test_train_without_dropout_warns(cli: Cli) -> None:
    result = cli("trace", "one step", "--train")
    assert result.code == 0
    assert result.err == "attnscope trace: warning: --train changes nothing here: --dropout is 0\n"
    quiet = cli("trace", "one step", "--train", "--dropout", "0.5")
    assert (quiet.code, quiet.err) == (0, "")


# --- mask, tokens, layers -----------------------------------------------------------------------------


def test_mask_in_json(cli: Cli) -> None:
    body = cli("mask", "-n", "6", "--queries", "2", "--format", "json").json
    assert body["allowed"] == np.tri(2, 6, 4, dtype=bool).tolist()
    for convention, code in body["torch"].items():
        built = eval(code, {"torch": torch, "float": float})
        expected = torch.tensor(body["allowed"])
        if convention == "additive":
            assert torch.equal(built == 0, expected)
        else:
            assert torch.equal(built, expected if convention == "allowed" else ~expected)


def test_tokens_in_bytes(cli: Cli) -> None:
    body = cli("tokens", "é", "--encoding", "bytes", "--format", "json").json
    assert [token["id"] for token in body["tokens"]] == list("é".encode())
    assert body["encoding"] == "bytes"


def test_layers_lists_every_layer(cli: Cli) -> None:
    body = cli("layers", "--format", "json").json
    assert [layer["name"] for layer in body["layers"]] == list(LAYERS)
    text = cli("layers").out
    assert all(f"\n{name}  " in text for name in LAYERS)


# --- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["json", "txt", "svg", "html"])
def test_output_goes_into_a_file(cli: Cli, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"mask.{suffix}"
    result = cli("mask", "--len", "3", "--output", str(target))
    assert (result.code, result.out) == (0, "")
    text = target.read_text(encoding="utf-8")
    if suffix == "json":
        assert json.loads(text) == cli("mask", "--len", "3", "--format", "json").json
    else:
        assert "causal" in text
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_a_text_file_equals_the_plain_output(cli: Cli, tmp_path: Path) -> None:
    cli("trace", "one step", "--output", str(tmp_path / "t.txt"), "--width", "70")
    assert (tmp_path / "t.txt").read_text(encoding="utf-8") == cli("trace", "one step", "--width", "70").out


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_no_line_is_wider_than_the_width(cli: Cli, width: int) -> None:
    for args in (("trace", "one step"), ("mask", "--len", "40"), ("layers",), ("tokens", "one step")):
        lines = cli(*args, "--width", str(width)).out.splitlines()
        assert max(map(len, lines)) <= width


def test_color_is_for_terminals_unless_asked_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" not in cli("mask", "--len", "3").out
    assert "\x1b[" in cli("mask", "--len", "3", "--color", "always").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in cli("mask", "--len", "3").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in cli("mask", "--len", "3").out
