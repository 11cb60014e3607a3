"""What `attnscope explain CODE` prints: the docstring of the file that finds the code, never imported.

Each rule is one file whose docstring begins `AS101: …` and has the parts meaning, harm, `Example:` (an
indented block of code) and `Cure:`, below which stands what changes in the example: a diff without line
numbers, its places parted by an empty line. Neither torch nor the rule itself is imported.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnscope.errors import UsageError

_FOLDERS = ("crashes", "checks", "equivalence")
_TITLE = re.compile(r"\A\s*(AS\d{3}):\s*(.+)")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code: its title line, what it means (with why it is bad), an example's source, the cure, and what
    it changes in the example."""

    code: str
    title: str
    meaning: str
    example: str
    cure: str
    change: str
    path: str


def explain(code: str) -> Explanation:
    """The explanation of a code such as `AS101`; case and spaces around it do not matter.

    Raises UsageError for an unknown code, with the nearest known one.
    """
    wanted = code.strip().upper()
    if wanted.isdigit():
        wanted = f"AS{wanted}"
    known = dict(_titles())
    if wanted in known:
        return _read(known[wanted])
    shown = "".join(c if c.isprintable() else "?" for c in code)[:40]
    raise UsageError(f"there is no code {shown!r}", hint(wanted))


def codes() -> tuple[Explanation, ...]:
    """All codes, in order."""
    return tuple(_read(path) for _, path in sorted(_titles()))


def names() -> tuple[str, ...]:
    """Every code, in order; nothing of a rule but its first lines is read."""
    return tuple(sorted(code for code, _ in _titles()))


def hint(wanted: str) -> str:
    """The code that is nearest to a wrong one, and which there are."""
    known = list(names())
    if not known:
        return "no code is installed"
    digits = re.sub(r"\D", "", wanted)[:9]
    if digits:
        nearest = min(known, key=lambda one: (abs(int(one[2:]) - int(digits)), one))
        same = [one for one in known if one[2] == digits[0]]
        if same:
            nearest = min(same, key=lambda one: (abs(int(one[2:]) - int(digits)), one))
    else:
        nearest = (difflib.get_close_matches(wanted, known, 1, 0.0) or known)[0]
    return f"the nearest is {nearest}; codes go from {known[0]} to {known[-1]}"


def _titles() -> Iterator[tuple[str, Path]]:
    """(code, file) of every rule; only each file's first lines are looked at."""
    for folder in _FOLDERS:
        for path in sorted((Path(__file__).parent / folder).glob("*.py")):
            with path.open(encoding="utf-8") as lines:
                head = lines.read(300)
            found = re.match(r"\s*[rR]?(?:'''|\"\"\")\s*(AS\d{3}):", head)
            if found:
                yield found[1], path


def _read(path: Path) -> Explanation:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    title = _TITLE.match(text)
    if title is None:
        raise ValueError(f"{path.name} has no title line")
    before, _, after = text[title.end() :].partition("\nExample:\n")
    example, _, end = after.partition("\nCure:")
    cure, _, change = end.partition("\n\n")
    return Explanation(
        title[1],
        title[2].strip().rstrip("."),
        before.strip(),
        textwrap.dedent(example.strip("\n")).rstrip() + "\n",
        cure.strip(),
        textwrap.dedent(change.strip("\n")),
        str(path),
    )
