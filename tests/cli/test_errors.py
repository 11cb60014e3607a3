"""Wrong command lines and inputs: one line that says what would work, exit 2, nothing on standard output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnscope.cli import boundary

Fails = Callable[..., str]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        # The parser's.
        (("msak",), ["unknown command `msak`", "mask"]),
        (("one step",), ["no command before the text", "attnscope trace TEXT"]),
        (("--nope",), ["unknown option --nope"]),
        (("mask", "--kidn", "full"), ["unknown option --kidn", "--kind"]),
        (("trace", "hi", "--haeds", "2"), ["unknown option --haeds", "--heads"]),
        (("mask", "--len", "x"), ["--len must be a whole number, not `x`"]),
        (("mask", "--len", "2.5"), ["--len must be a whole number"]),
        (("mask", "--len"), ["'--len' requires an argument"]),
        (("trace", "hi", "--dropout", "much"), ["--dropout must be a number, not `much`"]),
        (("layers", "x"), ["more arguments"]),
        (("trace", "one", "step"), ["more than one text", "quotes"]),
        (("trace", "-one step"), ["-one step", '-- "-one step"']),
        (("tokens", "- a list"), ["- a list", '-- "- a list"']),
        (("trace", "--heads are many"), ['-- "--heads are many"']),
        # Texts.
        (("trace",), ["no text", "TEXT, --file FILE, or -"]),
        (("trace", ""), ["the text is empty"]),
        (("tokens", "hi", "--file", "x"), ["both given"]),
        (("tokens", "--file", "missing.txt"), ["no file missing.txt"]),
        (("tokens", "hi", "--encoding", "gpt3"), ["unknown encoding `gpt3`", "gpt2"]),
        (("trace", "one step", "--context", "1"), ["2 tokens, the context is 1", "--context 2"]),
        # Layers and sizes.
        (("trace", "hi", "--layer", "mulithead"), ["unknown layer `mulithead`", "multihead"]),
        (("trace", "hi", "--layer", "causal", "--heads", "2"), ["causal has no --heads", "stacked"]),
        (("trace", "hi", "--layer", "nanogpt", "--d-out", "2"), ["nanogpt has no --d-out"]),
        (("trace", "hi", "--heads", "3"), ["--heads 3 does not divide --d-out 16", "--heads 2 or 4"]),
        (("trace", "hi", "--heads", "0"), ["--heads 0 is out of range"]),
        (("trace", "hi", "--depth", "2", "--d-out", "8"), ["--depth 2 needs an output as wide"]),
        (("trace", "hi", "--dropout", "2"), ["--dropout 2 is out of range"]),
        (("trace", "hi", "--dropout", "nan"), ["--dropout nan is out of range"]),
        (("trace", "hi", "--seed", "-1"), ["--seed -1 is out of range"]),
        (("trace", "hi", "--dtype", "float23"), ["unknown dtype `float23`", "float32"]),
        (("trace", "hi", "--device", "gpu"), ["no device `gpu`", "cpu"]),
        # What is shown.
        (("trace", "hi", "--head", "2"), ["there is no head 2", "--head from 0 to 1"]),
        (("trace", "hi", "--head", "-1"), ["there is no head -1"]),
        (("trace", "hi", "--layer-index", "1"), ["there is no layer 1", "--layer-index 0"]),
        (("trace", "hi", "--show", "weihgts"), ["unknown section `weihgts`", "weights"]),
        (("trace", "hi", "--show", ","), ["--show names no section"]),
        (
            ("trace", "hi", "--show", "shapes", "--head", "0"),
            ["--head has no use without the section weights"],
        ),
        (("trace", "hi", "--show", "shapes", "--layer-index", "0"), ["--layer-index has no use"]),
        (("trace", "hi", "--precision", "9"), ["--precision 9 is out of range"]),
        (("trace", "hi", "--precision", "3", "--format", "json"), ["--precision has no use for JSON"]),
        (("trace", "hi", "--scores"), ["--scores is for JSON", "--format json"]),
        (("trace", "hi", "--values"), ["--values is for JSON"]),
        (("trace", "hi", "--format", "jsno"), ["unknown format `jsno`", "json"]),
        (("trace", "hi", "--color", "alwys"), ["unknown choice of --color `alwys`", "always"]),
        (("trace", "hi", "--width", "5"), ["--width 5 is out of range"]),
        (("layers", "--format", "json", "--width", "80"), ["--width has no use for JSON"]),
        (("layers", "--format", "json", "--color", "always"), ["--color has no use for JSON"]),
        (("layers", "--output", "x.pdf"), ["x.pdf", ".svg"]),
        (("layers", "--output", "no/such/folder/x.svg"), ["does not exist"]),
        (("layers", "--output", "x.svg", "--format", "json"), ["--format json does not fit"]),
        (("layers", "--output", "x.svg", "--color", "always"), ["--color has no use with --output"]),
        # Masks.
        (("mask",), ["there is no --len", "--len 8"]),
        (("mask", "--len", "0"), ["--len 0 is out of range"]),
        (("mask", "--len", "-3"), ["--len -3 is out of range"]),
        (("mask", "--len", "99999999999"), ["out of range"]),
        (("mask", "--len", "8", "--kind", "slding"), ["unknown kind of mask `slding`", "sliding"]),
        (("mask", "--len", "8", "--kind", "sliding"), ["needs --window"]),
        (("mask", "--len", "8", "--window", "3"), ["no use for --window", "--kind sliding"]),
        (("mask", "--len", "4", "--queries", "5"), ["--queries 5 is out of range"]),
    ],
)
def test_a_wrong_command_line_is_answered_with_one_line(
    fails: Fails, args: tuple[str, ...], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = fails(*args)
    for part in parts:
        assert part in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("hi",), "TEXT has no use with --input"),
        (("--file", "t.txt"), "--file has no use with --input"),
        (("--encoding", "bytes"), "--encoding has no use with --input"),
        (("--special",), "--special has no use with --input"),
        (("--download",), "--download has no use with --input"),
        (("--d-model", "4"), "--d-model 4 does not fit --input, whose C is 3"),
        (("--context", "5"), "6 tokens, the context is 5"),
    ],
)
def test_an_option_that_an_input_has_no_use_for(
    fails: Fails, tmp_path: Path, args: tuple[str, ...], part: str
) -> None:
    np.save(tmp_path / "x.npy", np.ones((6, 3)))
    assert part in fails("trace", "--input", str(tmp_path / "x.npy"), "--layer", "causal", *args)


def test_a_seed_without_anything_random(fails: Fails, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((6, 3)))
    args = ("trace", "--input", str(tmp_path / "x.npy"), "--state-dict", "w.pt", "--seed", "1")
    assert "--seed has no use" in fails(*args, "--layer", "causal")


def test_hostile_arguments_come_back_harmless(fails: Fails) -> None:
    evil = "\x1b[31m\x07\u202e\udc80\n\x00[bold]"
    for args in (
        (evil,),
        ("trace", f"--{evil}"),
        ("trace", "hi", "--layer", evil),
        ("trace", "--file", evil),
        ("mask", "--len", evil),
        ("trace", "--input", f"{evil}.npy"),
        ("layers", "--output", f"{evil}.svg"),
        ("layers", "--output", f"x.{evil}"),
    ):
        line = fails(*args)
        assert not set(line) & set("\x1b\x07\u202e\udc80\n\x00")


def test_a_refused_run_leaves_an_old_file_alone(fails: Fails, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    fails("trace", "hi", "--head", "7", "--output", str(target))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_internal_error_is_one_line(
    cli: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("first line\nsecond line \x1b[0m")

    monkeypatch.setattr("attnscope.masks.build", broken)
    assert boundary.run(["mask", "--len", "3"]) == 70
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "attnscope mask: internal error: RuntimeError: first line; "
        "please report it, with what the same command says with --debug\n"
    )
    with pytest.raises(RuntimeError):
        boundary.run(["mask", "--len", "3", "--debug"])
    with pytest.raises(RuntimeError):
        boundary.run(["--debug", "mask", "--len", "3"])


def test_memory_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr("attnscope.masks.build", broken)
    assert boundary.run(["mask", "--len", "3"]) == 70
    assert "not enough memory" in capsys.readouterr().err


def test_a_crash_is_told_whatever_was_picked(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        "import torch\n"
        "class Bad(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return (x @ x.mT).softmax(-1) @ x @ x\n"
    )
    args = ("--module", str(path), "--input", "torch.randn(1, 4, 3)", "--format", "json")
    result = cli("trace", *args, "--show", "shapes,weights", "--head", "5")
    assert result.code == 1 and result.err == ""
    assert [one["code"] for one in result.json["findings"]] == ["AS111"]
    assert [step["op"] for step in result.json["steps"]][-2:] == ["matmul", "matmul"]
    assert "attention" not in result.json
