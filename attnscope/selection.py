"""Which codes are looked for: `AS208`, or all that begin so (`AS2`), by commas or one by one."""

from __future__ import annotations

from collections.abc import Iterable

from attnscope.codebook import hint, names
from attnscope.errors import UsageError
from attnscope.text import visible


def split(given: str | Iterable[str]) -> tuple[str, ...]:
    """The codes and prefixes in `"AS201, as22"` or in several such, in capitals, each once."""
    texts = [given] if isinstance(given, str) else given
    words = [word.strip().upper() for text in texts for word in text.split(",")]
    return tuple(dict.fromkeys(word for word in words if word))


def expand(given: str | Iterable[str], what: str) -> frozenset[str]:
    """All codes that begin like one that was given. `what` names where it was given: `--select`.

    Raises UsageError for what no code begins with, and where nothing is named.
    """
    found: set[str] = set()
    words = split(given)
    if not words:
        raise UsageError(f"{what} names no code", "for example AS201")
    for word in words:
        begun = matching(word)
        if not begun:
            raise UsageError(f"unknown code of {what} `{visible(word[:40])}`", hint(word))
        found |= begun
    return frozenset(found)


def matching(word: str) -> frozenset[str]:
    """The codes that begin with `word`; none for less than `AS`."""
    return frozenset(code for code in names() if len(word) > 1 and code.startswith(word.upper()))


def selection(select: str | Iterable[str], ignore: str | Iterable[str]) -> frozenset[str] | None:
    """The codes that are looked for; None for all. What is ignored is so whether or not it is selected.

    Raises UsageError for a code that does not exist.
    """
    if not select and not ignore:
        return None
    chosen = expand(select, "--select") if select else frozenset(names())
    return chosen - expand(ignore, "--ignore") if ignore else chosen
