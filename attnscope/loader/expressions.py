"""`NAME=EXPR` on the command line: told from a bare expression, evaluated, or read from a file."""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnscope.errors import UsageError

_BINDING = re.compile(r"\s*([^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*=(?!=)(.*)", re.DOTALL)
_FILES = (".npy", ".pt", ".pth", ".json")
MAX_FILE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Binding:
    """One `--arg` or `--input`: `name` is None for a bare expression; `path` are the fields after a dot."""

    name: str | None
    path: tuple[str, ...]
    expression: str

    @property
    def dotted(self) -> str:
        return ".".join((self.name or "", *self.path))


def parse_binding(text: str) -> Binding:
    """Split `NAME=EXPR`; an expression with `=` inside a call (`randn(2, generator=None)`) has no name."""
    match = _BINDING.fullmatch(text)
    if match is None:
        return Binding(None, (), text.strip())
    name, *path = match[1].split(".")
    return Binding(name, tuple(path), match[2].strip())


def printable(text: object, limit: int = 160) -> str:
    """`text` on one line, with nothing in it that a terminal would interpret."""
    try:
        shown = str(text)
    except KeyboardInterrupt:
        raise
    except BaseException:
        shown = f"<{type(text).__name__}>"  # the user's own __str__ raises
    line = " ".join(shown.split())
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in line)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def words(error: BaseException | None) -> str:
    """What an exception says; nothing where its own `__str__` fails."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean `x`?` for the nearest of `known`, or the list of them when it is short, or nothing."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    if not close:
        lower = {k.lower(): k for k in names}
        close = [lower[c] for c in difflib.get_close_matches(name.lower(), list(lower), n=2, cutoff=0.6)]
    if close:
        return "did you mean " + " or ".join(f"`{printable(c)}`" for c in close) + "?"
    shown = [n for n in names if not n.startswith("_")][:12]
    return "there are " + ", ".join(f"`{printable(n)}`" for n in shown) if shown else ""


def evaluate(expression: str, names: Mapping[str, Any], where: str) -> Any:
    """The value of a Python expression in which `names` are known.

    Raises:
        UsageError: the expression is no Python, names something unknown, or raises.
    """
    try:
        code = compile(expression, f"<{where}>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(
            f"{where} is not a Python expression: `{printable(expression)}` ({printable(reason)})"
        ) from None
    try:
        return eval(code, dict(names))
    except NameError as error:
        missing = error.name or ""
        hint = nearest(missing, [n for n in names if not n.startswith("__")])
        if expression.isidentifier():
            hint = f'a text is written in quotes: `"{printable(expression)}"`' + (f"; {hint}" if hint else "")
        raise UsageError(f"{where}: `{printable(missing)}` is not known", hint) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(
            f"{where}: `{printable(expression)}` raises {type(error).__name__}: {printable(error)}"
        ) from None


def value_of(expression: str, names: Mapping[str, Any], where: str) -> Any:
    """The tensor in a `.npy`, `.pt` or `.json` file, or the value of a Python expression."""
    if expression.lower().endswith(_FILES) and "(" not in expression:
        return read_file(Path(expression), where)
    return evaluate(expression, names, where)


def check_file(path: Path, where: str) -> None:
    """Raises UsageError unless `path` is a plain file of a size that can be read: a pipe may never end."""
    shown = printable(path)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise UsageError(f"{where}: there is no file `{shown}`", "give the path of a file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = printable(getattr(error, "strerror", None) or error)
        raise UsageError(f"{where}: `{shown}` cannot be read: {reason}", "give another file") from None
    if stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{where}: `{shown}` is a folder", "give a file")
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{where}: `{shown}` is a pipe or a device", "give a plain file")
    if status.st_size > MAX_FILE_BYTES:
        raise UsageError(
            f"{where}: `{shown}` is too large ({status.st_size / 1e9:.1f} GB)",
            f"up to {MAX_FILE_BYTES / 1e9:g} GB are read",
        )


def load_tensors(path: Path) -> Any:
    """What `torch.save` wrote, tensors alone: nothing in the file is run, and nothing is said."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(path, map_location="cpu", weights_only=True)


def read_file(path: Path, where: str) -> Any:
    """Arrays of a `.npy`, `.pt` (weights only) or `.json` file as tensors; nothing in it is run."""
    import numpy as np
    import torch

    check_file(path, where)
    shown = printable(path)
    try:
        if path.suffix.lower() == ".npy":
            array = np.ascontiguousarray(np.load(path, allow_pickle=False))
            return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
        if path.suffix.lower() == ".json":
            return torch.tensor(json.loads(path.read_text(encoding="utf-8")))
        return load_tensors(path)
    except OSError as error:
        raise UsageError(f"{where}: `{shown}` cannot be read: {printable(error.strerror or error)}") from None
    except Exception as error:
        reason = printable(str(error).splitlines()[0] if str(error) else type(error).__name__, 100)
        raise UsageError(
            f"{where}: `{shown}` does not hold a plain array ({reason})",
            "files are .npy without pickles, .pt with weights only, or .json with numbers",
        ) from None
