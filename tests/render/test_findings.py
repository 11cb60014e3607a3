"""Findings: the marks stand under the characters that they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from attnscope.diagnostic import Diagnostic, Label
from attnscope.render.findings import draw_finding, draw_findings
from attnscope.render.terminal import Style
from attnscope.schema import Span
from tests.render import made

Put = Callable[[str, Sequence[str]], None]


def drawn(finding: Diagnostic, width: int = 80, unicode: bool = True) -> list[str]:
    return [line.plain for line in draw_finding(Style(width, unicode=unicode), finding)]


def finding(file: str, line: int, column: int, end: int, label: str = "", **more: object) -> Diagnostic:
    span = Span(file, line, column, int(str(more.pop("end_line", line))), end)
    return Diagnostic("AS100", "error", "message", span, label, **more)  # type: ignore[arg-type]


def test_the_example_of_the_design() -> None:
    assert drawn(made.BUG, 100) == [
        "error[AS101]: `CausalAttention` has no attribute `bias`",
        "  --> bug.py:46:31",
        "   |",
        '30 |     self.register_buffer("mask", torch.tril(torch.ones(T, T)).view(1, 1, T, T))',
        "   |                          ------ `mask` [1, 1, 1024, 1024] is registered here and never read",
        "   |",
        '46 |     att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))',
        "   |                           ^^^^^^^^^ read here, before `att` [B 1, H 2, T 6, S 6] can be masked",
        "   |",
        "   = help: read `self.mask[:, :, :T, :T]`",
    ]


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("\t\tx = bad", "bad"),
        ("\t        x = bad", "bad"),
        (" " * 30 + "bad", "bad"),
        ("\tx = y.view(b)", "y.view(b)"),
        ("a\tb\tc = bad", "bad"),
        ('s = "日本"; x = bad(1)', "bad(1)"),
        ('s = "\x1b[0m"; x = bad', "bad"),
        ("x = " + "a + " * 60 + "bad" + " + c" * 60, "bad"),
        ("bad" + " + c" * 60, "bad"),
    ],
)
@pytest.mark.parametrize("width", [40, 80])
def test_carets_stand_under_the_span(source: str, word: str, width: int, sources: Put) -> None:
    sources("m.py", [source])
    column = source.index(word) + 1
    lines = drawn(finding("m.py", 1, column, column + len(word)), width)
    shown, marks = lines[3], lines[4]
    start = cell_len(shown[: shown.index(word)])
    assert marks == " |".rjust(3).ljust(start) + "^" * cell_len(word)
    assert all(cell_len(line) <= width for line in lines)


def test_a_span_longer_than_the_line_is_cut() -> None:
    lines = drawn(finding("bug.py", 46, 5, 4000))
    assert lines[4].endswith("^")
    assert len(lines[4]) <= 80


def test_labels_of_one_line_hang_from_their_marks(sources: Put) -> None:
    sources("m.py", ["att = q @ k.transpose(1, 2)"])
    more = (
        Label(Span("m.py", 1, 1, 1, 4), "is assigned"),
        Label(Span("m.py", 1, 11, 1, 28), "is [D 8, T 6]"),
    )
    assert drawn(finding("m.py", 1, 7, 8, "is [T 6, D 8]", labels=more))[3:] == [
        "1 | att = q @ k.transpose(1, 2)",
        "  | ---   ^   ----------------- is [D 8, T 6]",
        "  | |     |",
        "  | |     is [T 6, D 8]",
        "  | is assigned",
    ]


def test_lines_are_sorted_and_gaps_shown(sources: Put) -> None:
    sources("m.py", [f"line{number}" for number in range(1, 12)])
    labels = tuple(Label(Span("m.py", line, 1, line, 3), f"at {line}") for line in (9, 1, 3))
    lines = drawn(finding("m.py", 4, 1, 3, "at 4", labels=labels))[2:]
    assert lines == [
        "  |",
        "1 | line1",
        "  | -- at 1",
        "2 | line2",
        "3 | line3",
        "  | -- at 3",
        "4 | line4",
        "  | ^^ at 4",
        "  |",
        "9 | line9",
        "  | -- at 9",
    ]


def test_a_span_of_several_lines_is_marked_on_each(sources: Put) -> None:
    sources("m.py", ["y = f(", "    a,", ")"])
    assert drawn(finding("m.py", 1, 5, 2, "here", end_line=3))[3:] == [
        "1 | y = f(",
        "  |     ^^",
        "2 |     a,",
        "  |     ^^",
        "3 | )",
        "  | ^ here",
    ]


def test_a_label_in_another_file_has_its_own_block(sources: Put) -> None:
    sources("a.py", ["x = 1"])
    sources("b.py", ["", "y = 2"])
    lines = drawn(finding("a.py", 1, 1, 2, labels=(Label(Span("b.py", 2, 1, 2, 2), "there"),)))
    assert lines[1:] == [
        " --> a.py:1:1",
        "  |",
        "1 | x = 1",
        "  | ^",
        " ::: b.py:2:1",
        "  |",
        "2 | y = 2",
        "  | - there",
    ]


def test_a_missing_file_keeps_the_facts() -> None:
    lines = drawn(finding("gone.py", 7, 3, 9, "the cause"))
    assert lines[1:] == [
        " --> gone.py:7:3",
        "  |",
        "7 | (the source cannot be read)",
        "  | the cause",
    ]


def test_a_file_in_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_bytes("# -*- coding: latin-1 -*-\ns = 'é'; bad\n".encode("latin-1"))
    assert drawn(finding(str(path), 2, 10, 13), 200)[-2:] == ["2 | s = 'é'; bad", "  |          ^^^"]


def test_a_file_that_breaks_its_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(b"s = '\xff'; bad\n")
    assert "bad" in drawn(finding(str(path), 1, 10, 13), 200)[3]


def test_no_span_is_no_block() -> None:
    lines = drawn(Diagnostic("AS2", "note", "said", notes=("one", "two"), help="do"))
    assert lines == ["note[AS2]: said", "  = note: one", "  = note: two", "  = help: do"]


def test_evidence_is_a_table_of_numbers() -> None:
    assert [line for line in drawn(made.FUTURE) if "0." in line or "query " in line] == [
        "   | query  weight on the future  allowed",
        "   | 0                      0.81        0",
        "   | 1                      0.62        0",
    ]


def test_long_help_is_wrapped_behind_its_word() -> None:
    lines = drawn(Diagnostic("AS2", "error", "m", help="word " * 30), 40)
    assert lines[1].startswith("  = help: word")
    assert all(line.startswith("          word") for line in lines[2:])
    assert sum(line.count("word") for line in lines) == 30


def test_the_summary_counts() -> None:
    lines = draw_findings(Style(80), [made.BUG, made.FUTURE, made.FUTURE])
    assert lines[-1].plain == "1 error, 2 warnings"
    assert draw_findings(Style(80), []) == []
