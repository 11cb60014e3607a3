"""Writing a result to a file: its suffix says how, and the file is there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.errors import UsageError
from attnscope.render.terminal import Lines, Style

if TYPE_CHECKING:
    from rich.text import Text

FILE_WIDTH = 100
SUFFIXES = (".json", ".svg", ".html", ".txt")

Draw = Callable[[Style], Lines]


def check_path(path: str | os.PathLike[str], suffixes: Sequence[str] = SUFFIXES) -> Path:
    """The path, if something can be written there; called before the work, not behind it.

    Raises UsageError for an unknown suffix, a directory, or a directory that does not exist.
    """
    target = Path(path)
    if target.suffix.lower() not in suffixes:
        known = ", ".join(suffixes[:-1]) + f" or {suffixes[-1]}"
        raise UsageError(f"cannot tell from the name {str(target)!r} what to write", f"end it in {known}")
    if target.is_dir():
        raise UsageError(f"{str(target)!r} is a directory", "give a file name")
    if not target.parent.is_dir():
        raise UsageError(f"the directory {str(target.parent)!r} does not exist", "make it first")
    return target


def write(
    path: str | os.PathLike[str],
    obj: object,
    *,
    command: str | None = None,
    draw: Draw | None = None,
    width: int | None = None,
    title: str = "attnscope",
) -> None:
    """Write `obj` as `.json`, or its drawing as `.txt` (no colour), `.svg` or `.html`.

    `draw` makes the drawing (default: all of `obj`); `width` is in cells, 100 by default. Raises UsageError
    when the suffix is unknown or the file cannot be written.
    """
    target = check_path(path)
    write_text(
        target, render(target.suffix.lower(), obj, command=command, draw=draw, width=width, title=title)
    )


def render(
    suffix: str,
    obj: object,
    *,
    command: str | None = None,
    draw: Draw | None = None,
    width: int | None = None,
    title: str = "attnscope",
) -> str:
    """The text of the file that `write` would write."""
    if suffix == ".json":
        from attnscope.render.as_json import dumps

        return dumps(obj, command)
    drawn = suffix != ".txt"
    style = Style(width or FILE_WIDTH, unicode=True, color=drawn, heat=drawn)
    if draw is None:
        from attnscope.render.show import object_lines

        lines: Sequence[Text] = object_lines(style, obj)
    else:
        lines = draw(style)
    if suffix == ".txt":
        return "".join(line.plain.rstrip() + "\n" for line in lines)
    from attnscope.render.page import to_html, to_svg

    return to_svg(lines, title) if suffix == ".svg" else to_html(lines, title)


def write_text(path: Path, text: str) -> None:
    """Write beside the target and rename: whoever reads sees the old file or the whole new one."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
        temporary = ""
    except OSError as error:
        raise UsageError(
            f"cannot write {str(path)!r}: {error.strerror or error}", "give another file"
        ) from None
    finally:
        if temporary:
            os.unlink(temporary)


def _mode(path: Path) -> int:
    """The rights that the file had, else those that a new file gets (mkstemp gives the owner's alone)."""
    try:
        return path.stat().st_mode & 0o7777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def html_block(obj: object, width: int = FILE_WIDTH) -> str:
    """What a notebook shows for `obj` (`_repr_html_`)."""
    from attnscope.render.page import to_html_block
    from attnscope.render.show import object_lines

    return to_html_block(object_lines(Style(width, unicode=True, color=True, heat=True), obj))
