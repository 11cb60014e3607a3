"""Which codes are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from attnscope.cli.options import Group
from attnscope.selection import expand, split


@dataclass(frozen=True)
class Codes(Group):
    """Codes to look for, and codes to leave out."""

    PANEL: ClassVar[str] = "Codes"

    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="CODES",
            help="Look for these codes alone, by commas: AS201, or AS2 for all that begin so (repeatable).",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="CODES", help="Leave these codes out, named likewise (repeatable)."),
    ] = None

    def split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Codes and prefixes that are selected and ignored. Raises UsageError for unknown ones."""
        for option, given in (("--select", self.select), ("--ignore", self.ignore)):
            if given is not None:
                expand(given, option)
        return split(self.select or ()), split(self.ignore or ())
