"""One row for each tensor operation that the module's own source calls, none else, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnscope.recorder.record import record
from attnscope.steps import Steps, build_steps
from tests.showing import axes, ops, recorded, run

pytestmark = pytest.mark.usefixtures("seeded")

Load = Callable[..., Any]

NANOGPT = """
class CausalSelfAttention(nn.Module):
    def __init__(self, d, H, T, bias=False, dropout=0.2):
        super().__init__()
        assert d % H == 0
        self.c_attn = nn.Linear(d, 3 * d, bias=bias)
        self.c_proj = nn.Linear(d, d, bias=bias)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)
        self.H = H
        self.d = d
        self.register_buffer("mask", torch.tril(torch.ones(T, T))
                                    .view(1, 1, T, T))

    def forward(self, x):
        B, T, _ = x.size()
        q, k, v = self.c_attn(x).split(self.d, dim=2)
        k = k.view(B, T, self.H, self.d // self.H).transpose(1, 2)
        q = q.view(B, T, self.H, self.d // self.H).transpose(1, 2)
        v = v.view(B, T, self.H, self.d // self.H).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, self.d)
        y = self.resid_dropout(self.c_proj(y))
        return y
"""

# d 16, H 4, T 4, D 4: only the names tell four axes of size 4 apart.
S16, S64 = (64, 16, 1), (64, 16, 4, 1)
MASKED = "-inf where self.mask[:, :, :T, :T] == 0"
NANOGPT_ROWS = [
    (21, None, "linear", "c_attn: C 16 → 3C 48", "B T 3C", (2, 4, 48), (192, 48, 1), "new", None),
    (21, "q, k, v", "split", "3C 48 → C 16, C 16, C 16", "B T C", (2, 4, 16), (192, 48, 1), "view", 1),
    (22, None, "view", "C 16 → H 4 × D 4", "B T H D", (2, 4, 4, 4), (192, 48, 4, 1), "view", 1),
    (22, "k", "transpose", "T ↔ H", "B H T D", (2, 4, 4, 4), (192, 4, 48, 1), "view", 1),
    (23, None, "view", "C 16 → H 4 × D 4", "B T H D", (2, 4, 4, 4), (192, 48, 4, 1), "view", 1),
    (23, "q", "transpose", "T ↔ H", "B H T D", (2, 4, 4, 4), (192, 4, 48, 1), "view", 1),
    (24, None, "view", "C 16 → H 4 × D 4", "B T H D", (2, 4, 4, 4), (192, 48, 4, 1), "view", 1),
    (24, "v", "transpose", "T ↔ H", "B H T D", (2, 4, 4, 4), (192, 4, 48, 1), "view", 1),
    (25, None, "transpose", "T ↔ D", "B H D T", (2, 4, 4, 4), (192, 4, 1, 48), "view", 1),
    (25, None, "matmul", "[… T D] @ [… D S] → [… T S]", "B H T S", (2, 4, 4, 4), S64, "new", None),
    (25, "att", "mul", "× 0.5", "B H T S", (2, 4, 4, 4), S64, "new", None),
    (26, None, "getitem", "[:, :, :T, :T]", "1 1 T S", (1, 1, 4, 4), (64, 64, 8, 1), "view", 11),
    (26, None, "eq", "== 0", "1 1 T S", (1, 1, 4, 4), (16, 16, 4, 1), "new", None),
    (26, "att", "masked_fill", MASKED, "B H T S", (2, 4, 4, 4), S64, "new", None),
    (27, "att", "softmax", "over S 4", "B H T S", (2, 4, 4, 4), S64, "new", None),
    (28, "att", "dropout", "attn_dropout: p 0.2, off in eval", "B H T S", (2, 4, 4, 4), S64, "view", None),
    (29, "y", "matmul", "[… T S] @ [… S D] → [… T D]", "B H T D", (2, 4, 4, 4), S64, "new", None),
    (30, None, "transpose", "H ↔ T", "B T H D", (2, 4, 4, 4), (64, 4, 16, 1), "view", 17),
    (30, None, "contiguous", "copies into memory order", "B T H D", (2, 4, 4, 4), S64, "copy", None),
    (30, "y", "view", "H 4 × D 4 → C 16", "B T C", (2, 4, 16), S16, "view", None),
    (31, None, "linear", "c_proj: C 16 → C 16", "B T C", (2, 4, 16), S16, "new", None),
    (31, "y", "dropout", "resid_dropout: p 0.2, off in eval", "B T C", (2, 4, 16), S16, "view", None),
]


def test_every_row_of_nanogpt(load: Load) -> None:
    module = load(NANOGPT, "CausalSelfAttention")(16, 4, 8).eval()
    rows = run(module, torch.randn(2, 4, 16))
    shown = []
    for row in rows:
        out = row.outputs[0]
        since = row.noncontiguous_since
        assert out.contiguous == (since is None)
        assert row.values is None and row.error is None and not row.inner and row.module == ""
        names = axes(out)
        shown.append(
            (row.line, row.variable, row.op, row.detail, names, out.shape, out.stride, row.memory, since)
        )
    assert shown == NANOGPT_ROWS
    assert [row.index for row in rows] == list(range(22))
    assert [axes(info) for info in rows[1].outputs] == ["B T C"] * 3
    assert [axes(info) for info in rows[9].inputs] == ["B H T D", "B H D S"]
    assert [axes(info) for info in rows[16].inputs] == ["B H T S", "B H S D"]
    span = rows[9].span
    assert (span.line, span.column, span.end_line, span.end_column) == (25, 16, 25, 39)


def test_a_plain_module(load: Load) -> None:
    module = load(
        """
        class Plain(nn.Module):
            def __init__(self, width, heads):
                super().__init__()
                self.heads = heads
                self.w = nn.Parameter(torch.randn(width, 3 * width))
                self.register_buffer("causal", torch.ones(9, 9).tril().bool())

            def forward(self, x):
                b, t, c = x.shape
                q, k, v = (x @ self.w).split(c, dim=2)
                q = q.view(b, t, self.heads, -1).transpose(1, 2)
                k = k.view(b, t, self.heads, -1).transpose(1, 2)
                v = v.view(b, t, self.heads, -1).transpose(1, 2)
                scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
                scores = scores.masked_fill(~self.causal[:t, :t], float("-inf"))
                mixed = scores.softmax(-1) @ v
                if t > 100:
                    mixed = mixed * 2
                return mixed.transpose(1, 2).reshape(b, t, c)
        """,
        "Plain",
    )(12, 3)
    assert ops(run(module, torch.randn(2, 5, 12))) == [
        (15, None, "matmul"),
        (15, "q, k, v", "split"),
        (16, None, "view"),
        (16, "q", "transpose"),
        (17, None, "view"),
        (17, "k", "transpose"),
        (18, None, "view"),
        (18, "v", "transpose"),
        (19, None, "transpose"),
        (19, None, "matmul"),
        (19, "scores", "div"),
        (20, None, "getitem"),
        (20, None, "invert"),
        (20, "scores", "masked_fill"),
        (21, None, "softmax"),
        (21, "mixed", "matmul"),
        (24, None, "transpose"),
        (24, None, "reshape"),
    ]


FORMS = [
    ("a, b = x + 1, x - 1", [("a", "add"), ("b", "sub")]),
    ("(c, d), e = (x * 2, x / 2), x @ x.mT", [("c", "mul"), ("d", "div"), (None, "mT"), ("e", "matmul")]),
    ("q, k = [t.exp() for t in (x, x)]", [("q", "exp"), ("k", "exp")]),
    ("q, k = (t.exp().abs() for t in (x, x))", [(None, "exp"), ("q", "abs"), (None, "exp"), ("k", "abs")]),
    ("qs = [t.cos() for t in (x, x)]", [("qs[0]", "cos"), ("qs[1]", "cos")]),
    ("qs = tuple(t.cos() for t in (x, x))", [("qs[0]", "cos"), ("qs[1]", "cos")]),
    ("pair = x[0], x[1]", [("pair[0]", "getitem"), ("pair[1]", "getitem")]),
    ("if (w := x.abs()) is not None: w += 1", [("w", "abs"), ("w", "add_")]),
    ("x = x.clone(); x *= 2", [("x", "clone"), ("x", "mul_")]),
    ("x = x.clone(); x[:, 0] = 0", [("x", "clone"), ("x", "setitem")]),
    ("y = x.clone(); y[0] += 1", [("y", "clone"), (None, "getitem"), ("y[0]", "add_"), ("y", "setitem")]),
    ("y = x.neg() if x.ndim == 3 else x.abs()", [("y", "neg")]),
    ("r = s = x.tanh()", [("r", "tanh")]),
    ("self.saved = x.sigmoid()", [("self.saved", "sigmoid")]),
    ("y: torch.Tensor = x.sin()", [("y", "sin")]),
    ("d = dict(v=x.sqrt())", [(None, "sqrt")]),
    ("first, *rest = x.chunk(3, dim=-1)", [("first, *rest", "chunk")]),
    ("a, b = x", [("a, b", "unbind")]),
    ("a, b = x.exp()", [(None, "exp"), ("a, b", "unbind")]),
    ("i, j = x.max(dim=-1)", [("i, j", "max")]),
    ("v = x.topk(2).values", [(None, "topk")]),
    ("y = x.clone(); y.clamp_(min=0)", [("y", "clone"), ("y", "clamp_")]),
    ("y = self.ln(self.fc(x))", [(None, "linear"), ("y", "layer_norm")]),
    ("y = self.seq(x)", [(None, "linear"), (None, "relu"), ("y", "dropout")]),
    (
        "y, z = [self.seq(t) for t in (x, x)]",
        [
            (None, "linear"),
            (None, "relu"),
            ("y", "dropout"),
            (None, "linear"),
            (None, "relu"),
            ("z", "dropout"),
        ],
    ),
    ("for layer in self.ls: x = x + layer(x)", [(None, "linear"), ("x", "add")] * 2),
    ("y = F.softmax(x, -1)", [("y", "softmax")]),
    ("y = torch.softmax(x, dim=-1)", [("y", "softmax")]),
    ("y = x.softmax(-1)", [("y", "softmax")]),
    ("y = x.view(2, 4, 6).size(0)", [(None, "view")]),
    ("n = len(x) + x.dim() + x.numel() + x.shape[1]", []),
    ("y = torch.add(x, 1, out=torch.empty(0))", [(None, "empty"), ("y", "add")]),
    ("y = functools.partial(torch.mul, x)(x)", [("y", "mul")]),
    ("y = sorted([3, 1]); z = x.T if False else x.mT", [("z", "mT")]),
    ("with torch.no_grad(): y = x + 1", [("y", "add")]),
    ("assert (x == x).all()", [(None, "eq"), (None, "all")]),
    ("print(x.sum().item() * 0, end='')", [(None, "sum")]),
    ("y = x.to(torch.float64)", [("y", "to")]),
    ("y = -x", [("y", "neg")]),
    ("y = 1 - x", [("y", "sub")]),
    ("y = x ** 2", [("y", "pow")]),
    ("y = ~(x > 0)", [(None, "gt"), ("y", "invert")]),
    ("y = torch.vmap(lambda t: t * 2)(x)", [(None, "mul")]),
]


@pytest.mark.parametrize(("line", "expected"), FORMS, ids=[line for line, _ in FORMS])
def test_forms_of_assignment(load: Load, line: str, expected: list[tuple[str | None, str]]) -> None:
    module = load(
        f"""
        import functools
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.ln = nn.Linear(6, 6), nn.LayerNorm(6)
                self.seq = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Dropout())
                self.ls = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
            def forward(self, x):
                {line}
                return x
        """,
        "M",
    )().eval()
    rows = run(module, torch.randn(2, 4, 6))
    assert [(row.variable, row.op) for row in rows] == expected
    assert {row.line for row in rows} <= {14}


def test_a_chain_over_several_lines(load: Load) -> None:
    module = load(
        """
        class M(nn.Module):
            def forward(self, x):
                y = (
                    x
                    .transpose(1, 2)
                    .reshape(2, 6, 4)
                    .sum(
                        dim=-1,
                    )
                )
                return torch.cat(
                    [y, y],
                    dim=0,
                )
        """,
        "M",
    )()
    rows = run(module, torch.randn(2, 4, 6))
    assert ops(rows) == [(10, None, "transpose"), (11, None, "reshape"), (12, "y", "sum"), (16, None, "cat")]


def test_helpers_count_where_they_stand(load: Load) -> None:
    load("def far(t):\n    return t.relu()\n", stem="helpers_elsewhere")
    module = load(
        """
        import functools
        import helpers_elsewhere
        half = lambda t: t / 2
        def plus_one(f):
            @functools.wraps(f)
            def inner(*a):
                return f(*a) + 1
            return inner
        @plus_one
        def thrice(t):
            return t * 3
        class M(nn.Module):
            def forward(self, x):
                y = half(x)
                z = thrice(y)
                return helpers_elsewhere.far(z)
        """,
        "M",
    )()
    rows = run(module, torch.randn(2, 4, 6))
    assert ops(rows) == [(8, None, "div"), (16, None, "mul"), (12, None, "add"), (6, None, "relu")]
    assert rows[-1].file.endswith("helpers_elsewhere.py") and axes(rows[-1].outputs[0]) == "B T C"


def test_parts_of_a_module_have_their_paths(load: Load) -> None:
    module = load(
        """
        class Inner(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(6, 6)
            def forward(self, x):
                return self.fc(x)
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Inner(), Inner()])
                self.again = self.blocks[0]
                self.hidden = [Inner()]
            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return self.again(self.hidden[0](x)) * 2
        """,
        "Outer",
    )()
    rows = run(module, torch.randn(2, 4, 6))
    assert [row.module for row in rows] == ["blocks.0", "blocks.1", "<Inner>", "blocks.0", ""]
    assert [row.detail for row in rows[:1]] == ["fc: C 6 → C 6"]


def test_hooks_are_the_users_own_lines(load: Load) -> None:
    text = """
    def before(module, args):
        return (args[0] + 1,)
    def after(module, args, out):
        return out * 2
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 6)
            self.fc.register_forward_pre_hook(before)
            self.fc.register_forward_hook(after)
        def forward(self, x):
            return self.fc(x)
    """
    assert ops(run(load(text, "M")(), torch.randn(2, 4, 6))) == [
        (7, None, "add"),
        (17, None, "linear"),
        (9, None, "mul"),
    ]


def test_numbers_stand_on_the_side_where_they_are_written(load: Load) -> None:
    lines = ["3 - x", "3 / x", "3 ** x", "3 // x", "3 % x", "torch.rsub(x, 3)", "torch.pow(3, x)"]
    lines += ["x - 3", "x / 3", "x**3", "x // 3", "x % 3", "3 + x", "3 * x"]
    body = "".join(f"            _ = {line}\n" for line in lines)
    text = f"class M(nn.Module):\n        def forward(self, x):\n{body}            return x"
    assert [row.detail for row in run(load(text, "M")(), torch.randn(2, 4, 6))] == [
        *("3 − x", "3 ÷ x", "3 ^ x", "3 // x", "3 % x", "3 − x", "3 ^ x"),
        *("− 3", "÷ 3", "^ 3", "// 3", "% 3", "+ 3", "× 3"),
    ]


def test_pytorchs_own_steps_only_when_asked_for() -> None:
    mha = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    x = torch.randn(2, 5, 12)
    assert [row.op for row in run(mha, x, x, x)] == ["multi_head_attention_forward"]
    rows = run(mha, x, x, x, inner=True)
    inner = [row.op for row in rows if row.inner]
    assert {"linear", "softmax", "baddbmm", "bmm"} & set(inner) and len(inner) > 10
    assert [row.op for row in rows if not row.inner] == ["multi_head_attention_forward"]


def test_a_layer_of_pytorchs_as_the_whole_module() -> None:
    rows = run(nn.TransformerEncoderLayer(12, 3, 16, batch_first=True).eval(), torch.randn(2, 5, 12))
    assert [row.op for row in rows] == [
        "multi_head_attention_forward",
        "dropout",
        "layer_norm",
        "linear",
        "relu",
        "dropout",
        "linear",
        "dropout",
        "layer_norm",
    ]


@pytest.mark.parametrize(
    ("call", "memory"),
    [
        ("x.view(2, 24)", "view"),
        ("x.reshape(2, 24)", "view"),
        ("x.mT.reshape(2, 24)", "copy"),
        ("x.contiguous()", "view"),
        ("x.mT.contiguous()", "copy"),
        ("x.flatten(1)", "view"),
        ("x.mT.flatten(1)", "copy"),
        ("x[0]", "view"),
        ("x[:, None]", "view"),
        ("x[:, [0, 1]]", "new"),
        ("x[x > 0]", "new"),
        ("x.T", "view"),
        ("x.expand(3, 2, 4, 6)", "view"),
        ("x.repeat(1, 1, 2)", "copy"),
        ("x.repeat_interleave(2, 0)", "copy"),
        ("torch.cat([x, x])", "new"),
        ("torch.stack([x, x])", "new"),
        ("x.clone()", "copy"),
        ("x.to(torch.float32)", "view"),
        ("x.to(torch.float64)", "copy"),
        ("x.float()", "view"),
        ("x.chunk(2, -1)", "view"),
        ("x.unbind(0)", "view"),
        ("x + 1", "new"),
        ("x @ x.mT", "new"),
        ("x.clone().add_(1)", "in-place"),
        ("F.dropout(x, 0.5, False)", "view"),
        ("F.dropout(x, 0.5, True)", "new"),
        ("torch.einsum('bt...->tb...', x)", "view"),
        ("x.detach()", "view"),
        ("F.relu(x.clone(), inplace=True)", "in-place"),
        ("nn.SiLU(inplace=True)(x.clone())", "in-place"),
        ("torch.add(x, 1, out=torch.empty(2, 4, 6))", "in-place"),
    ],
)
def test_memory(load: Load, call: str, memory: str) -> None:
    text = f"""
    class M(nn.Module):
        def forward(self, x):
            return {call}
    """
    row = run(load(text, "M")(), torch.randn(2, 4, 6))[-1]
    assert row.memory == memory


def test_who_made_it_non_contiguous(load: Load) -> None:
    text = """
    class M(nn.Module):
        def forward(self, x):
            a = x.transpose(1, 2)
            b = a[0]
            c = b + 1
            d = c.T
            e = d.contiguous()
            return a * 1, e
    """
    rows = run(load(text, "M")(), torch.randn(2, 4, 6))
    assert [row.noncontiguous_since for row in rows] == [0, 0, 2, None, None, 5]
    assert [row.outputs[0].contiguous for row in rows] == [False, False, False, True, True, False]


def test_values_are_snapshots(load: Load) -> None:
    text = """
    class M(nn.Module):
        def forward(self, x):
            y = x * 2
            z = y.view(-1)
            y += 1
            z[0] = 100
            return y
    """
    x = torch.arange(4.0).view(1, 2, 2)
    recording = record(load(text, "M")(), (x,), values=True)
    values = [step.values for step in build_steps(recording)]
    assert all(value is not None and len(value) == 1 for value in values)
    flat = [value[0].reshape(-1).tolist() for value in values if value]
    assert flat == [[0, 2, 4, 6], [0, 2, 4, 6], [1, 3, 5, 7], [100, 3, 5, 7]]


def test_a_failing_step_is_the_last_row(load: Load) -> None:
    text = """
    class M(nn.Module):
        def forward(self, x):
            y = x.transpose(1, 2)
            z = y.view(2, 24)
            return z
    """
    recording = recorded(load(text, "M")(), torch.randn(2, 4, 6))
    assert isinstance(recording.error, RuntimeError)
    rows = Steps(recording).rows
    assert [(row.op, row.error is None) for row in rows] == [("transpose", True), ("view", False)]
    assert rows[1].outputs == () and rows[1].detail == "[B 2, C 6, T 4] → [2, 24]"
    assert str(recording.error) == rows[1].error


def test_results_of_any_form(load: Load) -> None:
    text = """
    import dataclasses
    @dataclasses.dataclass
    class Out:
        name: str
        logits: object
    class M(nn.Module):
        def forward(self, x, how):
            y = x + 1
            return {"list": [None, y], "dict": {"n": 1, "y": y}, "data": Out("n", y), "none": None}[how]
    """
    module = load(text, "M")()
    for how in ("list", "dict", "data"):
        recording = record(module, (torch.randn(2, 4, 6), how))
        assert recording.result_serial == recording.events[-1].outputs[0]
    assert record(module, (torch.randn(2, 4, 6), "none")).result_serial is None


def test_code_without_a_source_file() -> None:
    scope: dict[str, Any] = {"nn": nn}
    exec("class M(nn.Module):\n    def forward(self, x):\n        y = x + 1\n        return y.mT", scope)
    rows = run(scope["M"](), torch.randn(2, 4, 6))
    assert [(row.line, row.variable, row.op) for row in rows] == [(3, None, "add"), (4, None, "mT")]
    assert axes(rows[-1].outputs[0]) == "B C T"


def test_columns_count_characters(load: Load) -> None:
    text = """
    class M(nn.Module):
        def forward(self, x):
            größe = "é😀"; y = x @ x.mT
            return y
    """
    rows = run(load(text, "M")(), torch.randn(2, 4, 6))
    line = '        größe = "é😀"; y = x @ x.mT'
    for row, said in zip(rows, ("x.mT", "x @ x.mT"), strict=True):
        assert line[row.span.column - 1 : row.span.end_column - 1] == said


@pytest.mark.parametrize("where", ["module", "function", "in place", "root"])
def test_compiled_parts_run_as_they_were_written(load: Load, where: str) -> None:
    text = """
    def double(x):
        return x * 2
    class M(nn.Module):
        def __init__(self, where):
            super().__init__()
            given = dict(backend="eager", fullgraph=True)
            self.fc = nn.Linear(6, 6)
            if where == "module":
                self.fc = torch.compile(self.fc, **given)
            if where == "in place":
                self.fc.compile(backend="eager")
            self.double = torch.compile(double, **given) if where == "function" else double
        def forward(self, x):
            y = self.fc(x)
            return self.double(y)
    """
    module = load(text, "M")(where)
    if where == "root":
        module = torch.compile(module, backend="eager", fullgraph=True)
    x = torch.randn(2, 4, 6)
    recording = record(module, (x,))
    assert recording.error is None
    assert [row.op for row in Steps(recording).rows] == ["linear", "mul"]
    assert np.allclose(recording.result.detach().numpy(), module(x).detach().numpy(), atol=1e-6)


def test_unseen_parts_do_not_break_a_run(load: Load) -> None:
    text = """
    import threading
    from torch.utils.checkpoint import checkpoint
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.scripted = nn.Linear(6, 6), torch.jit.script(nn.Linear(6, 6))
        def forward(self, x):
            out = []
            thread = threading.Thread(target=lambda: out.append(self.fc(x) + 1))
            thread.start()
            thread.join()
            y = self.scripted(out[0])
            y = checkpoint(lambda t: t.relu(), y, use_reentrant=False)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = self.fc(y)
            return z.float() * 2
    """
    rows = run(load(text, "M")(), torch.randn(2, 4, 6))
    assert [row.op for row in rows] == ["relu", "linear", "float", "mul"]
    assert rows[1].outputs[0].dtype == "bfloat16"


RARE = {
    "sparse": "y = torch.sparse.mm(x[0].to_sparse(), x[0].T)",
    "quantised": "y = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()",
    "complex": "y = torch.view_as_real(torch.view_as_complex(x.reshape(2, 4, 3, 2)).conj() * 2)",
    "nothing": "y = x[:0].softmax(-1) @ x[:0].mT",
    "number": "y = (x.sum() * 2).view(1) + x.mean()",
    "vmap": "y = torch.vmap(lambda t: (t @ t.T).softmax(-1) @ t)(x)",
    "grad": "y = torch.func.grad(lambda t: (t ** 2).sum())(x)",
    "nested": "y = torch.nested.nested_tensor([x[0], x[1][:3]]).to_padded_tensor(0.0)",
    "inference": "\\n            with torch.inference_mode(): y = (x @ x.mT).softmax(-1) @ x",
    "strings": "y = torch.einsum('btc->tbc', x).to('cpu')",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.lenient) if name == "nested" else name for name in RARE]
)
@pytest.mark.parametrize("values", [False, True])
def test_rare_tensors(load: Load, name: str, values: bool) -> None:
    body = RARE[name].replace("\\n", "\n")
    text = f"""
    class M(nn.Module):
        def forward(self, x):
            {body}
            return y
    """
    module = load(text, "M")()
    x = torch.randn(2, 4, 6)
    recording = record(module, (x,), values=values)
    assert recording.error is None
    assert torch.equal(recording.result, module(x))
    assert Steps(recording).rows


def test_a_row_of_an_embedding_is_one_of_its_rows_and_not_one_of_the_ids() -> None:
    table, ids = torch.randn(11, 6), torch.zeros(2, 3, dtype=torch.long)

    class Lookup(nn.Module):
        def forward(self, ids, table):
            return nn.functional.embedding(ids, table) + torch.embedding(table, ids)

    rows = run(Lookup(), ids, table)
    assert [row.detail for row in rows if row.op == "embedding"] == ["row of 11 → C 6"] * 2
