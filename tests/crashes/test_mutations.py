"""Good modules, changed at one line: where that makes them raise, the line must be named."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from attnscope.diagnostic import Diagnostic
from tests.crashes.crash_harness import crash, named
from tests.importing import load

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
MODULES = (
    """
class Example(nn.Module):
    def __init__(self, dim=16, heads=2, context=8):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.register_buffer("mask", torch.ones(context, context).tril())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(self.dim, dim=2)
        q = q.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.out(y)
""",
    """
class Example(nn.Module):
    def __init__(self, dim=16, heads=4, kv_heads=2):
        super().__init__()
        self.heads, self.kv_heads, self.hd = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, heads * self.hd, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.hd, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.hd, bias=False)
        self.wo = nn.Linear(heads * self.hd, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.heads, self.hd).transpose(1, 2)
        k = self.wk(x).view(b, t, self.kv_heads, self.hd).transpose(1, 2)
        v = self.wv(x).view(b, t, self.kv_heads, self.hd).transpose(1, 2)
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))
""",
)


def mutate(source: str, dice: random.Random) -> tuple[str, int] | None:
    """The source with one line changed, and that line's number; None where the choice does not apply."""
    tree = ast.parse(source)
    lines = source.split("\n")
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and node.lineno == node.end_lineno]

    def with_text(node: ast.expr, text: str) -> tuple[str, int]:
        line = lines[node.lineno - 1]
        changed = [*lines]
        changed[node.lineno - 1] = line[: node.col_offset] + text + line[node.end_col_offset :]
        return "\n".join(changed), node.lineno

    def said(node: ast.AST) -> str:
        return ast.get_source_segment(source, node) or ""

    kind = dice.choice(["swap", "attribute", "constant", "unmethod", "view", "slash", "name"])
    if kind == "swap":
        calls = [n for n in nodes if isinstance(n, ast.Call) and len(n.args) > 1]
        call = dice.choice(calls)
        first, second = sorted(dice.sample(range(len(call.args)), 2))
        parts = [said(arg) for arg in call.args]
        parts[first], parts[second] = parts[second], parts[first]
        words = [said(word) for word in call.keywords]
        return with_text(call, f"{said(call.func)}({', '.join([*parts, *words])})")
    if kind == "attribute":
        chosen = [n for n in nodes if isinstance(n, ast.Attribute) and said(n.value) == "self"]
        node = dice.choice(chosen)
        return with_text(node, f"self.{node.attr}{dice.choice('sx_')}")
    if kind == "constant":
        numbers = [n for n in nodes if isinstance(n, ast.Constant) and type(n.value) is int]
        number = dice.choice(numbers)
        return with_text(number, str(int(said(number)) + dice.choice([-1, 1])))
    if kind == "unmethod":
        names = ("transpose", "view", "reshape", "contiguous", "split", "repeat_interleave", "size")
        calls = [
            n
            for n in nodes
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in names
        ]
        call = dice.choice(calls)
        return with_text(call, said(call.func.value))  # type: ignore[attr-defined]
    if kind == "view":
        turned = [n for n in nodes if isinstance(n, ast.Attribute) and n.attr in ("reshape", "contiguous")]
        node = dice.choice(turned)
        return with_text(node, f"{said(node.value)}.{'view' if node.attr == 'reshape' else 'clone'}")
    if kind == "slash":
        divisions = [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv)]
        division = dice.choice(divisions)
        return with_text(division, f"{said(division.left)} / {said(division.right)}")
    reads = [
        n for n in nodes if isinstance(n, ast.Name) and n.id in ("q", "k", "v", "b", "t", "c", "att", "y")
    ]
    name = dice.choice(reads)
    return with_text(name, name.id + "x")


def test_the_changed_line_is_named(tmp_path: Path, may_only_shrink: Callable[..., None]) -> None:
    dice = random.Random(7)
    raised: list[str] = []
    missed: list[str] = []
    for number in range(120):
        made = mutate(HEAD + dice.choice(MODULES).lstrip("\n"), dice)
        assert made is not None
        source, line = made
        path = tmp_path / f"mutant_{number}.py"
        path.write_text(source, encoding="utf-8")
        module = load(path, f"mutant_{number}")
        finding: Diagnostic | None = crash(module.Example, torch.randn(2, 6, 16))
        if finding is None:
            continue
        name = f"{number}: {source.splitlines()[line - 1].strip()}"
        raised.append(name)
        if line not in named(finding):
            missed.append(name)
        assert finding.help or finding.code == "AS100"
    assert len(raised) > 60
    may_only_shrink(Path(__file__).with_name("unnamed.txt"), raised, missed)


@pytest.mark.parametrize("source", MODULES, ids=["merged", "grouped"])
def test_a_dropped_line_is_told_by_what_it_set(source: str, tmp_path: Path) -> None:
    lines = (HEAD + source.lstrip("\n")).split("\n")
    seen = 0
    for number, line in enumerate(lines):
        found = re.match(r"\s+(self\.)?(\w+)(?:, \w+, \w+)? = ", line)
        if not found:
            continue
        changed = [*lines]
        changed[number] = re.match(r"\s*", line).group() + "pass"  # type: ignore[union-attr]
        path = tmp_path / f"dropped_{number}.py"
        path.write_text("\n".join(changed), encoding="utf-8")
        finding = crash(load(path, f"dropped_{number}_{len(source)}").Example, torch.randn(2, 6, 16))
        if finding is None or finding.code not in ("AS101", "AS128"):
            continue
        seen += 1
        assert f"`{found[2]}`" in finding.message
    assert seen >= 6
