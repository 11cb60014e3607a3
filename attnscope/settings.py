"""`[tool.attnscope]` of `pyproject.toml`: what a project has settled for `attnscope check`.

    [tool.attnscope]
    select = ["AS2"]
    ignore = ["AS208"]
    causal = false

    [tool.attnscope.per-file]
    "models/*.py" = {ignore = ["AS201"], causal = true}

The nearest `pyproject.toml` at or above the target's folder that has the table counts. Patterns are those of
ruff's `per-file-ignores`: of a path below that file's folder, or of a bare name; `*` also matches `/`. What a
file ignores is left out where a finding stands in it; `causal` is that of the target's own file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attnscope.diagnostic import Diagnostic, Report
from attnscope.errors import UsageError
from attnscope.files import short_path
from attnscope.ignores import counted
from attnscope.selection import expand
from attnscope.text import unknown

FILE = "pyproject.toml"
KEYS = ("select", "ignore", "causal", "per-file")
KEYS_OF_A_FILE = ("ignore", "causal")


@dataclass(frozen=True, slots=True)
class PerFile:
    """What counts for files that match `pattern`."""

    pattern: str
    ignore: tuple[str, ...] = ()
    causal: bool | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """One table `[tool.attnscope]`. `path` is the file that holds it; codes stand as they are written."""

    path: Path
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    causal: bool | None = None
    per_file: tuple[PerFile, ...] = ()

    def of(self, file: str) -> tuple[PerFile, ...]:
        """What counts for a file, in the order of the table."""
        return tuple(one for one in self.per_file if _matches(self.path.parent, one.pattern, file))


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one check goes by: the command line first, then the settings. `said`: what the latter changed."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]
    causal: bool | None
    said: str = ""
    settings: Settings | None = None

    def applied(self, report: Report) -> Report:
        """The report without what its files leave out, which is counted, and with what was changed."""
        said = (self.said,) if self.said else ()
        if self.settings is None:
            return replace(report, notes=(*said, *report.notes))
        out = [one for one in report.findings if one.code in self._left_out(one)]
        places = [(_place(one), (one.code,)) for one in out]
        notes = counted(places, f" by {short_path(str(self.settings.path))}")
        kept = tuple(one for one in report.findings if one not in out)
        return replace(report, findings=kept, notes=(*said, *notes, *report.notes))

    def _left_out(self, finding: Diagnostic) -> frozenset[str]:
        if finding.span is None or self.settings is None:
            return frozenset()
        wanted = [word for one in self.settings.of(finding.span.file) for word in one.ignore]
        return expand(wanted, "") if wanted else frozenset()


def _place(finding: Diagnostic) -> str:
    return f"{short_path(finding.span.file)}:{finding.span.line}" if finding.span is not None else ""


def choose(target: str, select: tuple[str, ...], ignore: tuple[str, ...], causal: bool | None) -> Chosen:
    """The command line's words and those of the project's settings. `--select` sets what these choose aside.

    Raises UsageError for a file that cannot be read, and for a table that is wrong in any way.
    """
    file = file_of(target)
    found = nearest(file.parent if file is not None else Path.cwd())
    if found is None:
        return Chosen(select, ignore, causal)
    if select:
        found = replace(
            found, select=(), ignore=(), per_file=tuple(replace(one, ignore=()) for one in found.per_file)
        )
    parts = [f"{name} {', '.join(words)}" for name in ("select", "ignore") if (words := getattr(found, name))]
    if causal is None:
        own = [one for one in found.of(str(file)) if one.causal is not None] if file is not None else []
        causal = own[-1].causal if own else found.causal
        by = f" (`{own[-1].pattern}`)" if own else ""
        parts += [f"causal = {str(causal).lower()}{by}"] if causal is not None else []
    said = f"{short_path(str(found.path))}: {'; '.join(parts)}" if parts else ""
    return Chosen(select or found.select, (*found.ignore, *ignore), causal, said, found)


def file_of(target: str) -> Path | None:
    """The file of `FILE.py`, `FILE.py:CLASS` or, below the current folder, `pkg.mod:CLASS`; a whole path."""
    where, colon, name = target.rpartition(":")
    where = where if colon and "/" not in name and "\\" not in name else target
    if "\0" in where:
        return None
    if where.endswith(".py"):
        return Path(where).absolute()
    bare = Path.cwd().joinpath(*where.split("."))
    tried = (bare.with_suffix(".py"), bare / "__init__.py") if where.replace(".", "_").isidentifier() else ()
    return next((path for path in tried if path.is_file()), None)


def nearest(folder: Path) -> Settings | None:
    """The settings of the nearest `pyproject.toml` that has some, at `folder` or above; else None."""
    for place in (folder, *folder.parents):
        path = place / FILE
        if not path.is_file():
            continue
        table = _table(path)
        if table is not None:
            return _settings(path, table)
    return None


def _table(path: Path) -> Mapping[str, Any] | None:
    name = short_path(str(path))
    try:
        with path.open("rb") as file:
            whole = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} is no TOML", str(error).partition("\n")[0]) from None
    except OSError as error:
        raise UsageError(f"{name} cannot be read", error.strerror or type(error).__name__) from None
    tool = whole.get("tool", {})
    if not isinstance(tool, dict) or "attnscope" not in tool:
        return None
    table = tool["attnscope"]
    if not isinstance(table, dict):
        raise UsageError(f"{name}: attnscope of [tool] must be a table", "begin it with [tool.attnscope]")
    return table


def _settings(path: Path, table: Mapping[str, Any]) -> Settings:
    where = f"{short_path(str(path))}: [tool.attnscope]"
    _known(table, KEYS, where)
    per_file = table.get("per-file", {})
    if not isinstance(per_file, dict):
        raise UsageError(f"{where} per-file must be a table", '"models/*.py" = {ignore = ["AS208"]}')
    files = []
    for pattern, inner in per_file.items():
        at = f'{where} per-file "{pattern}"'
        if not isinstance(inner, dict):
            raise UsageError(f"{at} must be a table", '{ignore = ["AS208"], causal = false} would work')
        _known(inner, KEYS_OF_A_FILE, at)
        files.append(PerFile(pattern, _codes(inner, "ignore", at), _causal(inner, at)))
    select, ignore = (_codes(table, key, where) for key in ("select", "ignore"))
    return Settings(path, select, ignore, _causal(table, where), tuple(files))


def _known(table: Iterable[str], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise unknown(f"key of {where}", key, keys)


def _codes(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    if key not in table:
        return ()
    value = table[key]
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UsageError(f"{where} {key} must be a list of codes", f'{key} = ["AS208"] would work')
    expand(value, f"{where} {key}")
    return tuple(value)


def _causal(table: Mapping[str, Any], where: str) -> bool | None:
    value = table.get("causal")
    if value is not None and not isinstance(value, bool):
        raise UsageError(f"{where} causal must be true or false", "causal = false would work")
    return value


def _matches(root: Path, pattern: str, file: str) -> bool:
    path = Path(file).absolute()
    bare = pattern.removeprefix("./")
    if "/" not in bare and fnmatchcase(path.name, bare):
        return True
    try:
        below = path.relative_to(root).as_posix()
    except ValueError:
        below = path.as_posix()
    return any(fnmatchcase(below, one) for one in (bare, bare.removeprefix("**/")))
