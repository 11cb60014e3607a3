"""The package's own syntax tree: no verdict reads a name, a text or the clock.

Whatever reads one stands in `ALLOWED` with its reason. The list may only shrink: what is no longer read must
go.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attnscope

ROOT = Path(attnscope.__file__).parent
NAMES = {"__name__", "__qualname__", "__module__"}
SOURCES = {"getsource", "getsourcelines", "getdoc", "getcomments", "__doc__"}
WORDS = {"message", "notes"}

_THEIRS = "PyTorch's own classes are told from the user's by the package that they come from"
_TITLE = "what is checked is called by it at the head of the report"
_SAID = "notes are carried on and added to, never asked"

ALLOWED = {
    ("checks/__init__", "message"): "a row of what was tried says the finding that it goes with",
    ("checks/as210_number_of_maps", "__module__"): _THEIRS,
    ("checks/as212_batch_mixed", "__module__"): _THEIRS,
    ("checks/as216_no_gradient", "__module__"): _THEIRS,
    ("checks/as217_unregistered", "__name__"): "the message calls the module that was left out by its class",
    ("checks/as220_made_in_forward", "__name__"): "the message calls the module that is made by its class",
    ("checks/consequences", "notes"): _SAID,
    ("checks/hidden", "__module__"): "containers of the standard library are gone through, others are not",
    ("checks/hidden", "__name__"): "what is found is called by its class",
    ("checks/judging", "notes"): _SAID,
    ("checks/places", "__module__"): _THEIRS,
    ("checks/session", "__module__"): "the module that a class stands in is loaded again",
    ("checks/session", "__name__"): _TITLE,
    ("checks/session", "notes"): _SAID,
}


def read(path: Path) -> Iterator[str]:
    """What a file reads that a verdict may not rest on; what a printed text is made of is no verdict."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    printed = {id(one) for text in texts for one in ast.walk(text)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in printed:
            yield node.attr


def found(folder: str, kinds: set[str]) -> set[tuple[str, str]]:
    files = sorted((ROOT / folder).glob("*.py"))
    return {(f"{folder}/{path.stem}", kind) for path in files for kind in read(path) if kind in kinds}


def test_no_verdict_reads_a_name_a_text_or_the_clock() -> None:
    here = found("checks", NAMES | SOURCES | WORDS | {"re", "tokenize", "time"})
    here |= found("crashes", {"__qualname__", "getdoc", "__doc__"})
    here |= found("loader", {"time"})
    assert sorted(here - set(ALLOWED)) == []
    assert sorted(set(ALLOWED) - here) == [], "no longer read: take it from the list"
