"""Every code's docstring is complete, and its example gives exactly that code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attnscope import crashes
from attnscope.codebook import codes, explain
from attnscope.errors import UsageError
from tests.crashes.crash_harness import run

OURS = [one for one in codes() if one.code.startswith("AS1")]


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.code)
def test_the_example_gives_exactly_its_code(entry, tmp_path: Path) -> None:
    finding = run(entry.example, tmp_path)
    assert finding is not None, "the example did not crash"
    assert finding.code == entry.code
    assert finding.severity == "error"
    if entry.code != "AS100":
        assert finding.help
    assert finding.span is not None


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.code)
def test_the_docstring_has_all_its_parts(entry) -> None:
    assert entry.title and entry.title[-1] != "."
    assert "It is bad" in entry.meaning
    assert "class Example" in entry.example
    assert entry.cure


def test_every_rule_is_in_the_table_and_the_codes_are_unique() -> None:
    folder = Path(crashes.__file__).parent
    files = sorted(path.stem for path in folder.glob("as1*.py"))
    assert files == sorted(crashes.RULES)
    assert len({one.code for one in codes()}) == len(codes())
    for one in OURS:
        assert Path(one.path).name.startswith(one.code.lower() + "_")


def test_reading_a_code_imports_no_torch() -> None:
    script = (
        "import sys; from attnscope.codebook import explain; explain('AS101'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(("given", "code"), [("AS101", "AS101"), (" as108 ", "AS108"), ("121", "AS121")])
def test_a_code_is_found_however_it_is_written(given: str, code: str) -> None:
    assert explain(given).code == code


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("AS199", OURS[-1].code), ("AS1O1", "AS100"), ("as1010", "AS"), ("\x1b[31m", "AS"), ("", "AS")],
)
def test_an_unknown_code_names_the_nearest(given: str, nearest: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(given)
    assert f"the nearest is {nearest}" in str(caught.value)
    assert "\x1b" not in str(caught.value)
