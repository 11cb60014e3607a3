"""A change of a source text, written as a diff without line numbers.

Lines begin with `- `, `+ ` or, for what stays, two spaces; an empty line parts one place from the next. How
far a place is indented in the text does not matter.
"""

from __future__ import annotations


def changed(source: str, change: str) -> str:
    """The text after the change; each place that the change names must be there exactly once."""
    lines = source.split("\n")
    for hunk in change.strip("\n").split("\n\n"):
        rows = [(line[:1], line[2:]) for line in hunk.split("\n")]
        old = [text for mark, text in rows if mark in "- "]
        new = [text for mark, text in rows if mark in "+ "]
        places = [
            at for at in range(len(lines) - len(old) + 1) if _moved(lines[at : at + len(old)]) == _moved(old)
        ]
        assert len(places) == 1, f"{len(places)} places hold\n{hunk}"
        deeper = _depth(lines[places[0]]) - _depth(old[0])
        lines[places[0] : places[0] + len(old)] = [
            " " * (_depth(text) + deeper) + text.lstrip() for text in new
        ]
    return "\n".join(lines)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _moved(lines: list[str]) -> list[tuple[int, str]]:
    """Lines as they stand to the first of them."""
    return [(_depth(line) - _depth(lines[0]), line.strip()) for line in lines]
