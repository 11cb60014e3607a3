"""How little adding takes, walked in a copy of the package: a file and its row, and everything knows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attnscope

PACKAGE = Path(attnscope.__file__).parent

LAYER = '''
"""Fewer heads for keys and values than for queries."""

import torch
from torch import nn
from torch.nn import functional as F


class GroupedAttention(nn.Module):
    def __init__(self, d_model, num_heads, num_kv_heads, context_length):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.q = nn.Linear(d_model, d_model)
        self.kv = nn.Linear(d_model, 2 * num_kv_heads * (d_model // num_heads))

    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x).view(b, t, self.num_heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, self.num_kv_heads, -1).permute(2, 0, 3, 1, 4)
        k, v = (u.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1) for u in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(b, t, c)
'''
LAYER_ROW = """    "grouped": Layer(
        LayerInfo(
            name="grouped",
            title="heads that share keys and values",
            source="Ainslie and others, GQA, 2023",
            options=("d_model", "num_heads", "num_kv_heads", *_COMMON),
            parameters=(("q.weight", "[d_model, d_model]"),),
            steps="x [B, T, C] → [B, T, C]",
        ),
        target="attnscope.layers.grouped:GroupedAttention",
        arguments={
            "d_model": "d_model",
            "num_heads": "num_heads",
            "num_kv_heads": "num_kv_heads",
            "context_length": "context_length",
        },
        width="d_model",
        own=(Option("num_kv_heads", "--kv-heads", "G", "Heads of keys and values", 1),),
    ),
"""

CHECK = '''"""AS298: the output is far too large.

Numbers beyond a million are no output of an attention.

It is bad because nothing after it can learn.

Example:

    from torch import nn

    class Example(nn.Module):
        def forward(self, x):
            return (x + 1) * 1e9

Cure: leave the factor out.

    - return (x + 1) * 1e9
    + return x + 1
"""

from attnscope.diagnostic import Diagnostic

CODE = "AS298"


def check(lab):
    if lab.base.output is not None and lab.base.output.abs().max() > 1e6:
        yield Diagnostic(CODE, "error", "the output is far too large", None, help="leave the factor out")
'''
LARGE = """from torch import nn


class Large(nn.Module):
    def forward(self, x):
        return (x + 1) * 1e9
"""
CHECK_ROW = '    Row("AS298", "as298_large", "whole", "size of the output", quiet=True),\n'

MASK = """def _strided(sizes: Sizes) -> Built:
    allowed = (sizes.query_positions - sizes.key_positions) % 2 == 0
    return allowed, "strided", "~strided"


"""
MASK_ROW = '    "strided": Kind("each token sees every second one", _strided),\n'

FORMAT = "def to_lines(obj):\n    return f'- {type(obj).__name__}\\n'\n"
FORMAT_ROW = '    "md": Format("Markdown", (".md",), "attnscope.render.as_md:to_lines"),\n'

COMMANDS: dict[str, tuple[str, ...]] = {
    "trace --help": ("trace", "--help"),
    "layers": ("layers",),
    "grouped": ("trace", "one step", "--layer", "grouped", "--kv-heads", "2", "--format", "json"),
    "none": ("trace", "one step", "--layer", "nanogpt", "--kv-heads", "2"),
    "range": ("trace", "one step", "--layer", "grouped", "--kv-heads", "0"),
    "compare": ("compare", "grouped", "grouped", "--arg", "num_kv_heads=2"),
    "explain": ("explain", "AS298"),
    "check": ("check", "large.py:Large", "--input", "torch.ones(2, 6, 16)", "--select", "AS298"),
    "mask --help": ("mask", "--help"),
    "mask": ("mask", "--len", "3", "--kind", "strided", "--format", "json"),
    "mask.md": ("mask", "--len", "3", "-o", "mask.md"),
    "md": ("mask", "--len", "3", "--format", "md"),
}
WALK = """
import contextlib, io, json, sys
from attnscope.cli.boundary import run
said = {}
for name, words in json.load(sys.stdin).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    said[name] = code, out.getvalue(), err.getvalue()
json.dump(said, sys.stdout)
"""


def _add(path: Path, table: str, row: str, above: str = "") -> None:
    """Puts a row at the top of a table of the file, and what it needs above it."""
    text = path.read_text(encoding="utf-8")
    (head,) = re.findall(rf"^{table}\b.*\n", text, re.M)
    path.write_text(text.replace(head, above + head + row), encoding="utf-8")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """What each of COMMANDS gives in a package to which four things were added."""
    folder = tmp_path_factory.mktemp("copy")
    copy = folder / "attnscope"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "gpt2"))
    (copy / "data" / "gpt2").symlink_to(PACKAGE / "data" / "gpt2")
    (copy / "layers" / "grouped.py").write_text(LAYER, encoding="utf-8")
    _add(copy / "layers" / "__init__.py", "LAYERS", LAYER_ROW)
    (copy / "checks" / "as298_large.py").write_text(CHECK, encoding="utf-8")
    _add(copy / "checks" / "registry.py", "CHECKS", CHECK_ROW)
    _add(copy / "masks.py", "KINDS", MASK_ROW, MASK)
    (copy / "render" / "as_md.py").write_text(FORMAT, encoding="utf-8")
    _add(copy / "render" / "formats.py", "FORMATS", FORMAT_ROW)
    (folder / "large.py").write_text(LARGE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WALK], cwd=folder, input=json.dumps(COMMANDS), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (folder / "mask.md").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(done.stdout)
    return {name: tuple(one) for name, one in found.items()}


def test_a_layer_with_an_option_is_a_file_and_a_row(said: dict[str, tuple[int, str, str]]) -> None:
    said_of_it = re.sub(r"[│\s]+", " ", said["trace --help"][1])
    assert "--kv-heads G grouped: Heads of keys and values (default: 1)." in said_of_it
    assert "grouped, causal, stacked, multihead or nanogpt" in said_of_it
    assert "heads that share keys and values" in said["layers"][1]
    code, out, err = said["grouped"]
    assert (code, err) == (0, "")
    trace = json.loads(out)
    assert trace["model"]["config"]["num_kv_heads"] == 2
    assert {step["outputs"][0]["shape"][-1] for step in trace["steps"] if step["op"] == "linear"} == {16, 32}
    assert said["none"] == (
        2,
        "",
        "attnscope trace: error: the layer nanogpt has no --kv-heads; layers that have it: grouped\n",
    )
    assert said["range"][0] == 2 and "--kv-heads 0 is out of range" in said["range"][2]
    assert said["compare"][0] == 0


def test_a_check_is_a_file_and_a_row(said: dict[str, tuple[int, str, str]]) -> None:
    assert said["explain"][0] == 0 and "+ return x + 1" in said["explain"][1]
    code, out, _ = said["check"]
    assert code == 1 and "error[AS298]: the output is far too large" in out


def test_a_kind_of_mask_is_one_entry(said: dict[str, tuple[int, str, str]]) -> None:
    assert "strided, causal, full, sliding or prefix" in said["mask --help"][1]
    assert json.loads(said["mask"][1])["allowed"] == [
        [True, False, True],
        [False, True, False],
        [True, False, True],
    ]


def test_an_output_format_is_a_renderer_and_a_row(said: dict[str, tuple[int, str, str]]) -> None:
    assert "md" in said["mask --help"][1] and ".md" in said["mask --help"][1]
    assert said["md"] == (0, "- Mask\n", "")
    assert said["mask.md"] == (0, "", "")
