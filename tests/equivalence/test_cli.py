"""`attnscope compare` on the command line: exit codes, JSON, drawings that fit."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import attnscope
from attnscope.cli.boundary import run
from attnscope.render.compare import draw_comparison
from attnscope.render.terminal import Style
from tests.zoo import compared as zoo

FILE = Path(zoo.__file__)


def command(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(["compare", *words])
    return code, out.getvalue(), err.getvalue()


def test_equal_is_0_different_is_1_impossible_is_2() -> None:
    code, out, err = command("stacked", "multihead")
    assert (code, err) == (0, "")
    assert out.splitlines()[-2].startswith("equal  largest difference ")
    pair = f"{FILE}:NoScale", f"{FILE}:Fused"
    code, out, _ = command(*pair, "--arg", "dim=16", "--arg", "heads=4")
    assert code == 1
    assert out.splitlines()[-1] == "different"
    assert "error[AS301]: A and B are different functions: with B " in out
    code, out, err = command("stacked", "no_such_layer")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "compare takes two modules"),
        (("stacked",), "compare takes two modules"),
        (
            ("stacked", "multihead", "--arg", "num_heads=5", "--arg", "d_model=32"),
            "num_heads=5 does not divide",
        ),
        (("stacked", "multihead", "--dtype", "int8"), "unknown dtype `int8`"),
        (("stacked", "multihead", "--layout", "xyz"), "--layout `xyz` is not known"),
        (("stacked", "multihead", "--show", "everything"), "unknown section `everything`"),
        (("stacked", "multihead", "--show", "runs", "--format", "json"), "--show has no use for JSON"),
        (("stacked", "multihead", "--seed", "-1"), "--seed -1 is out of range"),
        (("stacked", "multihead", "--input", "torch.randn(2, 5, 7)"), "neither can be called"),
    ],
)
def test_a_wrong_command_is_one_line(words: tuple[str, ...], said: str) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_json_has_both_traces_and_the_evidence() -> None:
    code, out, _ = command(
        f"{FILE}:OneAhead", f"{FILE}:Fused", "--arg", "dim=16", "--arg", "heads=4", "--format", "json"
    )
    body = json.loads(out)
    assert code == 1
    assert (body["schema"], body["command"], body["equal"]) == ("attnscope/1", "compare", False)
    assert [m["target"] for m in body["moved"]] == ["qkv.weight", "qkv.bias", "proj.weight", "proj.bias"]
    assert body["largest"] > 1e-3 > body["tolerance"]
    steps = {side: body[side]["trace"]["steps"] for side in "ab"}
    assert all(body[side]["operations"] == len(steps[side]) for side in "ab")
    parting = body["parting"]
    assert steps["b"][parting["b"]]["op"] == "scaled_dot_product_attention"
    for pair in body["pairs"]:
        assert pair["a"] is not None or pair["b"] is not None
    finding = body["findings"][0]
    assert finding["code"] == "AS301" and finding["span"]["file"] == str(FILE)


@pytest.mark.parametrize("width", [24, 40, 60, 80, 119, 120, 160])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_screen(width: int, unicode: bool) -> None:
    found = attnscope.compare(f"{FILE}:MixedHeads", f"{FILE}:Fused", args=("dim=16", "heads=4"))
    style = Style(width, unicode=unicode)
    lines = [line.plain for line in draw_comparison(style, found)]
    assert max(len(line) for line in lines) <= width
    if not unicode:
        assert all(line.isascii() for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "the traces part here" in text or width < 40


def test_wide_shows_equal_steps_beside_each_other() -> None:
    found = attnscope.compare("multihead", "nanogpt")
    wide = [line.plain for line in draw_comparison(Style(160), found, ("shapes",))]
    row = next(line for line in wide if line.count("softmax") == 2)
    assert "  =  " in row
    narrow = [line.plain for line in draw_comparison(Style(80), found, ("shapes",))]
    row = next(line for line in narrow if "softmax" in line)
    assert row.split()[:3] == ["=", "71", "72"]


def test_equal_heads_are_said_in_one_line() -> None:
    _, out, _ = command("stacked", "multihead", "--show", "shapes", "--width", "160")
    assert "A: heads.1 … heads.3 took the same 12 steps as heads.0" in out
    assert out.count("softmax") == 2


def test_a_hostile_module_is_printed_safely(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "class One(nn.Module):\n"
        "    def __init__(self, dim=8):\n"
        "        super().__init__()\n"
        "        self.lin = nn.Linear(dim, dim)\n"
        "    def forward(self, x):\n"
        "        return self.lin(x)\n"
        "class Two(One):\n"
        "    def forward(self, x):\n"
        "        raise ValueError('[bold]\\x1b[31m\\x00 red \\u202e')\n",
        encoding="utf-8",
    )
    code, out, err = command(f"{file}:One", f"{file}:Two")
    assert code == 1
    assert "B raises ValueError: [bold]" in out
    assert not {"\x1b", "\x00", "\u202e"} & set(out + err)


def test_saved_and_shown_in_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "both.svg"
    code, out, _ = command("stacked", "multihead", "--output", str(path))
    assert (code, out) == (0, "")
    assert path.read_text(encoding="utf-8").startswith("<svg ")
    found = attnscope.compare("causal", "multihead", args=("num_heads=1",))
    assert found.equal
    assert "equal" in found._repr_html_()
    assert "\nequal  " in repr(found)
