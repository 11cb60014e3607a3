"""What was guessed is not charged to the module: another guess, or exit 2 with the exception in the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAD = "import torch\nfrom torch import nn\n\n\n"
MODULES = {
    # Right; the first guess for `extra` crashes, another runs.
    "Extra": (
        "def __init__(self, dim, heads, extra):\n        super().__init__()\n"
        "        self.w = nn.Linear(dim, dim * extra)",
        "def forward(self, x):\n        return self.w(x)[..., : x.shape[-1]]",
    ),
    # Right; nothing that is guessed for `plan` fits.
    "Plan": (
        "def __init__(self, dim):\n        super().__init__()\n        self.w = nn.Linear(dim, dim)",
        'def forward(self, x, plan):\n        h = self.w(x)\n        return h * plan["rows"]',
    ),
    # Right; the constructor asks for something that cannot be guessed.
    "Table": (
        "def __init__(self, dim, table):\n        super().__init__()\n"
        "        self.w = nn.Linear(dim, table[-1][-1])",
        "def forward(self, x):\n        return self.w(x)",
    ),
    # Right; the width that was guessed is not that of the input that is given.
    "Width": (
        "def __init__(self, dim, heads):\n        super().__init__()\n        self.w = nn.Linear(dim, dim)",
        "def forward(self, x):\n        return self.w(x)",
    ),
    # Broken whatever is guessed.
    "Product": (
        "def __init__(self, dim, heads):\n        super().__init__()\n"
        "        self.w, self.heads = nn.Linear(dim, dim), heads",
        "def forward(self, x, mask):\n        b, t, c = x.shape\n"
        "        q = self.w(x).view(b, t, self.heads, -1).transpose(1, 2)\n"
        "        scores = q @ q\n        return scores.masked_fill(mask == 0, -1e9)",
    ),
    "Name": (
        "def __init__(self, dim, heads):\n        super().__init__()\n"
        "        self.w = nn.Linear(dim, head_dim * heads)",
        "def forward(self, x):\n        return self.w(x)",
    ),
    "Shape": (
        "def __init__(self, dim, heads):\n        super().__init__()\n"
        "        self.w = nn.Parameter(torch.ones(dim, heads) + torch.ones(dim + 1, heads))",
        "def forward(self, x):\n        return x",
    ),
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    def write(name: str) -> str:
        body = "\n\n    ".join(MODULES[name])
        (tmp_path / "mine.py").write_text(f"{HEAD}class {name}(nn.Module):\n    {body}\n")
        return f"mine.py:{name}"

    monkeypatch.chdir(tmp_path)
    return write


PLAN = (
    "`forward` raises TypeError: 'NoneType' object is not subscriptable at mine.py:12, and that hangs on a "
    'guess: `plan` is None; give it with --input "plan=torch.…"'
)
TABLE = (
    "`Table` raises TypeError: 'NoneType' object is not subscriptable at mine.py:8, and that hangs on a "
    "guess: `table` is None; give it with --arg table=…"
)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("check", "Plan"), f"attnscope check: error: {PLAN}"),
        (("trace", "a b", "--module", "Plan"), f"attnscope trace: error: {PLAN}"),
        (("compare", "Plan", "Plan"), f"attnscope compare: error: A: {PLAN}"),
        (("check", "Table"), f"attnscope check: error: {TABLE}"),
        (("compare", "Table", "Table"), f"attnscope compare: error: {TABLE}"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_crash_that_hangs_on_a_guess(
    cli: Callable[..., Any], module: Callable[[str], str], command: tuple[str, ...], words: str
) -> None:
    name = command[-1]
    target = module(name)
    result = cli(*(target if part == name else part for part in command))
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == words
    if name == "Plan" and command[0] != "compare":
        assert "self.w(x)" in result.err or "linear" in result.err  # the step before the crash


@pytest.mark.parametrize(
    ("name", "more", "guessed"),
    [
        ("Extra", (), "dim=24 heads=3 extra=1 (constructor)"),
        ("Width", ("--input", "torch.randn(2, 5, 40)"), "dim=40 heads=4 (constructor)"),
    ],
)
def test_another_guess_is_used_where_the_first_crashes(
    cli: Callable[..., Any], module: Callable[[str], str], name: str, more: tuple[str, ...], guessed: str
) -> None:
    result = cli("check", module(name), *more, "--format", "json")
    assert result.code == 0
    assert result.json["model"]["guesses"][0] == guessed


@pytest.mark.parametrize(("name", "code", "line"), [("Product", "AS111", 13), ("Name", "AS128", 8)])
def test_what_every_guess_leaves_is_the_modules(
    cli: Callable[..., Any], module: Callable[[str], str], name: str, code: str, line: int
) -> None:
    result = cli("check", module(name), "--format", "json")
    (finding,) = result.json["findings"]
    assert (result.code, finding["code"], finding["span"]["line"]) == (1, code, line)


def test_a_constructor_that_raises_whatever_is_guessed(
    cli: Callable[..., Any], module: Callable[[str], str]
) -> None:
    result = cli("check", module("Shape"), "--format", "json")
    assert result.code == 1 and result.json["findings"][0]["span"]["line"] == 8


def test_a_text_that_does_not_fit_the_vocabulary(
    tmp_path: Path, fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        f"{HEAD}class LM(nn.Module):\n    def __init__(self, vocab_size=300, n_embd=24):\n"
        "        super().__init__()\n        self.wte = nn.Embedding(vocab_size, n_embd)\n\n"
        "    def forward(self, idx):\n        return self.wte(idx)\n"
    )
    assert fails("trace", "To be or", "--module", "mine.py:LM", "--show", "tokens") == (
        "attnscope trace: error: token ids 2514, 307, 393 of the text do not fit the vocabulary of "
        "300 of `LM`; "
        '--encoding bytes would, or ids of its own: --input "idx=torch.tensor([[0, 1, 2]])"'
    )
