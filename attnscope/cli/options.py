"""Options that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

Text = Annotated[Optional[str], typer.Argument(metavar="TEXT", help="The text; - reads standard input.")]  # noqa: UP045
File = Annotated[Optional[str], typer.Option("--file", metavar="FILE", help="Read the text from a file.")]  # noqa: UP045
Encoding = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--encoding", metavar="NAME", help="gpt2 (default), bytes, or any that tiktoken knows."),
]
Special = Annotated[
    bool, typer.Option("--special", help="Read <|endoftext|> and the like as special tokens.")
]
Download = Annotated[
    bool, typer.Option("--download", help="Let tiktoken fetch an encoding that is not in its cache.")
]

Format = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--format", metavar="text|json", help="How the result is written (default: text)."),
]
Output = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--output", metavar="FILE", help="Write to a .json, .svg, .html or .txt file instead."),
]
Width = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--width", metavar="N", help="Columns to draw in (default: the terminal's; a file: 100)."),
]
Color = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--color", metavar="WHEN", help="auto (default), always or never."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")]
