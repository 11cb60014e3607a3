"""The text, and how it is cut into tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from attnscope.cli.options import Group
from attnscope.text import encode, read_text

if TYPE_CHECKING:
    from attnscope.schema import Token


@dataclass(frozen=True)
class Text(Group):
    """TEXT or a file of it, and an encoding."""

    PANEL: ClassVar[str] = "Text"

    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The text; - reads standard input.", rich_help_panel="Arguments"),
    ] = None
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="Read the text from a file.")] = (
        None
    )
    encoding: Annotated[
        str | None,
        typer.Option("--encoding", metavar="NAME", help="gpt2 (default), bytes, or any that tiktoken knows."),
    ] = None
    special: Annotated[
        bool, typer.Option("--special", help="Read <|endoftext|> and the like as special tokens.")
    ] = False
    download: Annotated[
        bool, typer.Option("--download", help="Let tiktoken fetch an encoding that is not in its cache.")
    ] = False

    @property
    def given(self) -> bool:
        """Whether there is a text at all."""
        return self.text is not None or self.file is not None

    @property
    def encoding_name(self) -> str:
        return self.encoding or "gpt2"

    def flags(self) -> dict[str, Any]:
        """What was given that only a text has a use for, by the option's name."""
        return {"--encoding": self.encoding, "--special": self.special, "--download": self.download}

    def tokens(self) -> tuple[Token, ...]:
        """The text as tokens. Raises UsageError where there is none, or two."""
        text = read_text(self.file, self.text)
        return encode(text, self.encoding_name, special=self.special, download=self.download)
