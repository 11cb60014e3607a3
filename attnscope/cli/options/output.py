"""Where a result goes: drawn on standard output, for other programs, or into a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import typer

from attnscope.cli.options import Group, among
from attnscope.errors import UsageError
from attnscope.render.formats import formats_of
from attnscope.text import unknown

if TYPE_CHECKING:
    from attnscope.render.terminal import ColorChoice, Lines, Style

COLORS = ("auto", "always", "never")
MIN_WIDTH, MAX_WIDTH = 40, 10_000

Width = Annotated[
    int | None,
    typer.Option("--width", metavar="N", help="Columns to draw in (default: the terminal's; a file: 100)."),
]
Color = Annotated[
    str | None,
    typer.Option(
        "--color",
        metavar="WHEN",
        help="auto (default), always or never.",
        autocompletion=among(COLORS),
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")]


@dataclass(frozen=True, slots=True)
class Destination:
    """Checked options of a result. `path` is None for standard output."""

    format: str
    path: Path | None
    width: int | None
    color: ColorChoice

    @property
    def json(self) -> bool:
        return self.format == "json"


def format_option(command: str) -> Any:
    """`--format` of a command."""
    names = list(formats_of(command))
    said = f"{', '.join([f'{names[0]} (default)', *names[1:-1]])} or {names[-1]}."
    return typer.Option("--format", metavar="NAME", help=said, autocompletion=among(names))


def output_option(command: str) -> Any:
    """`--output` of a command."""
    known = [suffix for row in formats_of(command).values() for suffix in row.suffixes]
    said = f"Write to a {', '.join(known[:-1])} or {known[-1]} file instead."
    return typer.Option("--output", "-o", metavar="FILE", help=said)


@dataclass(frozen=True)
class Output(Group):
    """How a result is written, and where."""

    PANEL: ClassVar[str] = "Output"
    COMMAND: ClassVar[str] = ""  # some formats are those of one command alone

    format: Annotated[str | None, format_option("")] = None
    output: Annotated[str | None, output_option("")] = None
    width: Width = None
    color: Color = None
    debug: Debug = False

    def destination(self) -> Destination:
        """Check the options that say where a result goes, before any work is done for it.

        Raises UsageError for unknown values, for options that contradict each other or that the format has no
        use for, and for a file that cannot be written.
        """
        formats = formats_of(self.COMMAND)
        if self.format is not None and self.format not in formats:
            raise unknown("format", self.format, formats)
        check_drawing(self.width, self.color)
        path, name = None, self.format or "text"
        if self.output is not None:
            path, name = self._file(self.output)
            if self.color is not None:
                raise UsageError(
                    "--color has no use with --output", "the suffix of the file decides on colour"
                )
        for option, value in (("--width", self.width), ("--color", self.color)):
            if name != "text" and value is not None:
                raise UsageError(
                    f"{option} has no use for {formats[name].title}",
                    "leave it out, or take --format text",
                )
        return Destination(name, path, self.width, cast("ColorChoice", self.color or "auto"))

    def _file(self, output: str) -> tuple[Path, str]:
        """The file that is written, and the format that its suffix asks for."""
        from attnscope.render.save import check_path

        if "\0" in output:
            raise UsageError("--output: no file name has a NUL in it", "give another file")
        formats = formats_of(self.COMMAND)
        suffixes = {suffix: name for name, row in formats.items() for suffix in row.suffixes}
        path = check_path(output, tuple(suffixes))
        name = suffixes[path.suffix.lower()]
        if self.format not in (None, name):
            raise UsageError(
                f"--format {self.format} does not fit the file name {path.name}", "leave --format out"
            )
        return path, name


def check_drawing(width: int | None, color: str | None) -> None:
    """Raises UsageError for a width or a choice of colour that there is not."""
    if color is not None and color not in COLORS:
        raise unknown("choice of --color", color, COLORS)
    if width is not None and not MIN_WIDTH <= width <= MAX_WIDTH:
        raise UsageError(
            f"--width {width} is out of range", f"a width from {MIN_WIDTH} to {MAX_WIDTH} would work"
        )


def send(
    to: Destination,
    obj: object,
    command: str,
    draw: Callable[[Style], Lines] | None = None,
    edit: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> None:
    """Write a result where it belongs: drawn by `draw` (by default all of `obj`), or as JSON after `edit`."""
    text = _document(to, obj, command, draw, edit)
    if to.path is not None:
        from attnscope.render.save import write_text

        write_text(to.path, text)
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        error.writing_stdout = True  # type: ignore[attr-defined]
        raise


def _document(
    to: Destination,
    obj: object,
    command: str,
    draw: Callable[[Style], Lines] | None,
    edit: Callable[[dict[str, Any]], dict[str, Any]] | None,
) -> str:
    if to.json:
        import json

        from attnscope.render.as_json import dumps, to_json

        if edit is None:
            return dumps(obj, command)
        return json.dumps(edit(to_json(obj, command)), allow_nan=False, ensure_ascii=True) + "\n"
    if to.format != "text":
        from attnscope.render.formats import renderer

        return renderer(to.format)(obj)
    if to.path is not None:
        from attnscope.render.save import render

        return render(to.path.suffix.lower(), obj, draw=draw, width=to.width, title=f"attnscope {command}")
    from attnscope.render.terminal import draw_text

    if draw is None:
        from attnscope.render.show import object_lines

        return draw_text(lambda style: object_lines(style, obj), to.width, to.color)
    return draw_text(draw, to.width, to.color)


def keep_stdout_apart() -> None:
    """From here on `send` alone reaches standard output.

    What a module, compiled code or a process that it starts writes to file descriptor 1 goes to standard
    error, so that the result stays whole.
    """
    with suppress(OSError, ValueError, AttributeError):  # no such descriptor, or a stream in the place of it
        if sys.stdout.fileno() != 1:
            return
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2 if _is_open(2) else os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout = open(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
