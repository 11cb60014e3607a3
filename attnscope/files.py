"""Source files as they are quoted: one line of text, one short name."""

from __future__ import annotations

import linecache
import os
import sys
import tokenize


def read_line(file: str, number: int) -> str:
    """One line of source without its end; empty where it cannot be read."""
    try:
        lines = linecache.getlines(file)
    except ValueError:  # a name with NUL or a lone surrogate, which no file has
        return ""
    if not lines:
        lines = _read_anyhow(file)
    return lines[number - 1].rstrip("\r\n") if 0 < number <= len(lines) else ""


def _read_anyhow(file: str) -> list[str]:
    """The lines of a file that linecache gives up on, for its bytes break the encoding that it declares."""
    try:
        with tokenize.open(file) as handle:
            return handle.read().splitlines()
    except (OSError, SyntaxError, ValueError):
        pass
    try:
        with open(file, encoding="utf-8", errors="backslashreplace") as handle:
            return handle.read().splitlines()
    except (OSError, ValueError):
        return []


def module_path(file: str) -> str:
    """A path as an import would find it: relative to the working directory, the package, or `sys.path`."""
    short = short_path(file)
    if not os.path.isabs(short):
        return short
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for base in (package, *sorted(filter(os.path.isabs, sys.path), key=len, reverse=True)):
        if short.startswith(os.path.join(base, "")):
            return short[len(base) :].lstrip(os.sep)
    return short


def short_path(file: str) -> str:
    """A path as the reader knows it: relative below the working directory, else as it is."""
    if not os.path.isabs(file):
        return file
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if relative.startswith("..") else relative
