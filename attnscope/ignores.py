"""`# attnscope: ignore[AS208]` on a line of the user's source: what is found there was settled by its author.

The list takes codes and what codes begin with (`AS2`); without a list every code is meant. Only the reader
of the file, never a name or another text, decides: nothing of this changes how a finding is proved.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from attnscope.diagnostic import Diagnostic
from attnscope.files import short_path
from attnscope.schema import Span
from attnscope.selection import matching, split
from attnscope.source import SourceFile, class_of, parse

_MARK = re.compile(r"#\s*attnscope\s*:\s*(.*?)\s*(?=#|$)")
_LIST = re.compile(r"ignore\s*\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Comment:
    """One such comment: the codes that it names (None: all), and words in it that are no code.

    `text` is all of it where it is not understood.
    """

    file: str
    line: int
    codes: frozenset[str] | None
    strange: tuple[str, ...] = ()
    text: str = ""

    @property
    def place(self) -> str:
        return f"{short_path(self.file)}:{self.line}"

    def takes(self, code: str) -> bool:
        return not self.text and (self.codes is None or code in self.codes)


def comments(file: SourceFile) -> tuple[Comment, ...]:
    """The comments of a file that speak to attnscope. A `#` in a string begins none."""
    if not any("attnscope" in line and "#" in line for line in file.lines):
        return ()
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(file.lines) + "\n").readline):
            if token.type == tokenize.COMMENT:
                found += [_read(file.name, token.start[0], one[1]) for one in _MARK.finditer(token.string)]
    except (tokenize.TokenError, SyntaxError):
        pass  # what stood before the place that cannot be read counts
    return tuple(found)


def _read(file: str, line: int, words: str) -> Comment:
    if words == "ignore":
        return Comment(file, line, None)
    listed = _LIST.fullmatch(words)
    if listed is None or not split(listed[1]):
        return Comment(file, line, frozenset(), text=words)
    named = {word: matching(word) for word in split(listed[1])}
    strange = tuple(word for word, codes in named.items() if not codes)
    return Comment(file, line, frozenset().union(*named.values()), strange)


def lines_of(file: SourceFile, span: Span) -> range:
    """The lines on which a comment speaks of a span: its statement's; of a `class` or `def` the head's."""
    inner: ast.stmt | None = None
    for node in ast.walk(file.tree):  # what lies deeper comes later
        if isinstance(node, ast.stmt) and node.lineno <= span.line <= (node.end_lineno or node.lineno):
            inner = node
    if inner is None:
        return range(span.line, span.line + 1)
    body = getattr(inner, "body", None) or getattr(inner, "cases", None)
    if not body:
        return range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
    first = body[0]
    begins = first.lineno if isinstance(first, ast.stmt) else first.pattern.lineno
    return range(inner.lineno, max(inner.lineno + 1, begins))


def settled(
    findings: Sequence[Diagnostic],
) -> tuple[tuple[Diagnostic, ...], tuple[str, ...], frozenset[Comment]]:
    """(findings that no comment settles, notes that count the others, the comments that settled any)."""
    kept: list[Diagnostic] = []
    taken: dict[Comment, list[str]] = {}
    for finding in findings:
        comment = _settling(finding)
        if comment is None:
            kept.append(finding)
        else:
            taken.setdefault(comment, []).append(finding.code)
    return tuple(kept), counted((c.place, codes) for c, codes in taken.items()), frozenset(taken)


def counted(ignored: Iterable[tuple[str, Sequence[str]]], why: str = "") -> tuple[str, ...]:
    """`1 finding ignored at attn.py:12 (AS208)`: one note for all places, none for none."""
    places = [(place, codes) for place, codes in ignored]
    number = sum(len(codes) for _, codes in places)
    if not number:
        return ()
    said = ", ".join(f"{place} ({', '.join(dict.fromkeys(codes))})" for place, codes in places)
    return (f"{number} finding{'' if number == 1 else 's'} ignored{why} at {said}",)


def _settling(finding: Diagnostic) -> Comment | None:
    span = finding.span
    file = parse(span.file) if span is not None else None
    if span is None or file is None:
        return None
    near = [one for one in comments(file) if one.takes(finding.code)]
    lines = lines_of(file, span) if near else range(0)
    return next((one for one in near if one.line in lines or one.line == span.line), None)


def complaints(
    classes: Iterable[type], used: Collection[Comment], looked_for: Callable[[str], bool]
) -> tuple[str, ...]:
    """Notes on comments in these classes that are wrong, or that settled nothing of what was looked for."""
    found: dict[Comment, str] = {}
    for cls in classes:
        held = class_of(cls)
        if held is None:
            continue
        file, node = held
        for one in comments(file):
            if node.lineno <= one.line <= (node.end_lineno or node.lineno):
                found[one] = _complaint(one, one in used, looked_for)
    return tuple(dict.fromkeys(said for said in found.values() if said))


def _complaint(one: Comment, used: bool, looked_for: Callable[[str], bool]) -> str:
    if one.text:
        return f"`# attnscope: {one.text}` at {one.place} is not understood: `ignore[AS208]` would be"
    if one.strange:
        return f"{', '.join(f'`{word}`' for word in one.strange)} at {one.place} is no code"
    every = looked_for("") if one.codes is None else all(map(looked_for, one.codes))
    if used or not every:
        return ""
    return f"`# attnscope: ignore` at {one.place} ignores nothing"
