"""The formats that a result can be written in: a new one is one row here, and its renderer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the suffixes of its files, and `module:function`, which makes its text.

    `text` is drawn by each command in its own way, and `json` is edited by some: they name no function.
    """

    suffixes: tuple[str, ...]
    function: str = ""


FORMATS: Mapping[str, Format] = {
    "json": Format((".json",)),
    "text": Format((".svg", ".html", ".txt")),
    "github": Format((), "attnscope.render.github:to_github"),
    "sarif": Format((".sarif",), "attnscope.render.sarif:to_sarif"),
}


def by_suffix() -> dict[str, str]:
    """The format of each suffix."""
    return {suffix: name for name, row in FORMATS.items() for suffix in row.suffixes}


def renderer(name: str) -> Callable[[object], str]:
    """The function that writes a result in this format."""
    module, _, function = FORMATS[name].function.partition(":")
    found: Any = getattr(import_module(module), function)
    return found  # type: ignore[no-any-return]
