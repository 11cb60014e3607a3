"""`check` of several targets: folders, files with several classes, and what cannot be checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attnscope.diagnostic import Report, Survey, Unchecked
from attnscope.errors import UsageError
from attnscope.loader import SeveralClasses, load_target, may_have_attention
from attnscope.strict import passed_over

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

Check = Callable[[str], Report]


def survey(targets: Sequence[str], check: Check) -> Report | Survey:
    """The report of one target, or those of all that several targets, a folder or a file stand for.

    What was named and is not there, and a single target that cannot be checked, raise UsageError; of several,
    what cannot be checked is told beside the reports of the others.
    """
    wanted = tuple(dict.fromkeys(targets))
    for target in wanted:
        _must_exist(target)
    if len(wanted) == 1 and not Path(wanted[0]).is_dir():
        try:
            return check(wanted[0])
        except SeveralClasses as several:
            return Survey(tuple(one for target in several.targets for one in _checked(target, check, False)))
    found: list[Report | Unchecked] = []
    for target in wanted:
        if Path(target).is_dir():
            for file in _attention_files(target):
                found += _checked(file, check, False)
        else:
            found += _checked(target, check, True)
    return Survey(tuple(found))


def _must_exist(target: str) -> None:
    """A mistyped name is told before anything runs."""
    where, _, name = target.rpartition(":")
    path = where if where.endswith(".py") and "/" not in name else target
    if "\0" in target or (path.endswith(".py") and not Path(path).exists()):
        load_target(target)  # says what there is in its place


def _checked(target: str, check: Check, named: bool) -> Iterator[Report | Unchecked]:
    try:
        yield check(target)
    except SeveralClasses as several:
        for one in several.targets:
            yield from _checked(one, check, False)
    except UsageError as error:
        yield Unchecked(target, str(error), named)
    except Exception as error:  # a fault of ours in one target may not hide what is said of the others
        passed_over(error)
        said = f"internal error: {type(error).__name__}: {error}".partition("\n")[0]
        yield Unchecked(target, f"{said}; please report it, with what --debug says", named)


def _attention_files(folder: str) -> list[str]:
    """The Python files below a folder in which a class looks like attention, in order."""
    files = [path for path in _python_files(folder) if may_have_attention(Path(path))]
    if not files:
        raise UsageError(f"no class below `{folder}` looks like attention", "name a file and its class")
    return files


def _python_files(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in SKIPPED
            and not Path(place, name, "pyvenv.cfg").exists()
        )
        yield from (os.path.join(place, name) for name in sorted(files) if name.endswith(".py"))
