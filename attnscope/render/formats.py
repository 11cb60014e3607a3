"""The formats that a result can be written in: a new one is one row here, and its renderer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its name in a message, the suffixes of its files, and `module:function`, which writes it.

    `text` is drawn by each command in its own way, and `json` is edited by some: they name no function.
    `commands` are those that have it; empty for all.
    """

    title: str
    suffixes: tuple[str, ...] = ()
    function: str = ""
    commands: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "text": Format("text", (".svg", ".html", ".txt")),
    "json": Format("JSON", (".json",)),
    "github": Format("annotations of a GitHub workflow", (), "attnscope.render.github:to_github", ("check",)),
    "sarif": Format("SARIF", (".sarif",), "attnscope.render.sarif:to_sarif", ("check",)),
}


def formats_of(command: str) -> dict[str, Format]:
    """The formats that a command has, by name."""
    return {name: row for name, row in FORMATS.items() if command in (row.commands or (command,))}


def renderer(name: str) -> Callable[[object], str]:
    """The function that writes a result in this format."""
    module, _, function = FORMATS[name].function.partition(":")
    found: Any = getattr(import_module(module), function)
    return found  # type: ignore[no-any-return]
