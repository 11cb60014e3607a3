"""Every code's page is complete, and is found however the code is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attnscope import checks, crashes
from attnscope.checks.registry import CHECKS
from attnscope.codebook import Explanation, codes, explain
from attnscope.errors import UsageError

OURS = [one for one in codes() if one.code[:3] in ("AS1", "AS2")]
LAST_CRASH = max(one.code for one in OURS if one.code < "AS2")


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.code)
def test_the_docstring_has_all_its_parts(entry: Explanation) -> None:
    assert entry.title and entry.title[-1] != "."
    assert "It is bad" in entry.meaning
    assert "class Example" in entry.example
    assert entry.cure and "\n\n" not in entry.cure
    assert all(line[:2] in ("- ", "+ ", "  ", "") for line in entry.change.splitlines())
    assert any(line.startswith(("- ", "+ ")) for line in entry.change.splitlines())


def test_every_rule_is_in_a_table_and_the_codes_are_unique() -> None:
    tables = ((crashes, crashes.RULES, "1"), (checks, [row.module for row in CHECKS], "2"))
    for package, rows, hundred in tables:
        folder = Path(str(package.__file__)).parent
        assert sorted(path.stem for path in folder.glob(f"as{hundred}*.py")) == sorted(rows)
    assert {row.module: row.code for row in CHECKS} == {row.module: row.module[:5].upper() for row in CHECKS}
    assert len({one.code for one in codes()}) == len(codes())
    for one in codes():
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
    [
        ("AS199", LAST_CRASH),
        ("AS1O1", "AS100"),
        ("as1010", "AS"),
        ("\x1b[31m", "AS"),
        ("", "AS"),
    ],
)
def test_an_unknown_code_names_the_nearest(given: str, nearest: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(given)
    assert f"the nearest is {nearest}" in str(caught.value)
    assert "\x1b" not in str(caught.value)
