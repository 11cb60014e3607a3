"""A script or a module run as `__main__`, as `python SCRIPT` and `python -m MODULE` run it."""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from types import CodeType, ModuleType

from attnscope.errors import UsageError

_PARENTS: list[ModuleType] = []


@dataclass(frozen=True)
class Program:
    """What to run: a path (`-`: standard input; a directory or an archive with `__main__.py`) or a module."""

    name: str
    args: tuple[str, ...] = ()
    module: bool = False

    def prepare(self) -> Callable[[], object]:
        """Check that there is something to run, and return what runs it.

        Raises UsageError when there is no such script or module. To find a module, the packages above it are
        imported, as Python does; nothing else runs before the returned function is called.
        """
        if self.module:
            return self._module()
        if self.name == "-":
            return self._stdin
        if not os.path.exists(self.name):
            raise UsageError(
                f"there is no script {self.name!r}", "give the path of a Python file, or -m MODULE"
            )
        if os.path.isdir(self.name) or _is_archive(self.name):
            return self._container()
        try:
            with io.open_code(os.path.abspath(self.name)) as file:
                file.read(1)
        except OSError as error:
            raise UsageError(
                f"cannot read {self.name!r}: {error.strerror}", "give the path of a Python file"
            ) from None
        return self._script

    # -- the kinds of programs ---------------------------------------------------------------------------

    def _script(self) -> None:
        file = _absolute(self.name)
        self._settle(os.path.dirname(os.path.realpath(self.name)), self.name)
        loader = (SourcelessFileLoader if file.endswith(".pyc") else SourceFileLoader)("__main__", file)
        main = _fresh_main(loader)
        main.__file__ = file
        main.__dict__["__cached__"] = None
        exec(_code(file), main.__dict__)

    def _stdin(self) -> None:
        self._settle("", "-")
        source = sys.stdin.buffer.read()
        main = _fresh_main(BuiltinImporter)
        main.__file__ = "<stdin>"
        main.__dict__["__cached__"] = None
        exec(compile(source, "<stdin>", "exec", dont_inherit=True), main.__dict__)

    def _module(self) -> Callable[[], object]:
        self._settle(os.getcwd(), "-m")
        get_details = runpy._get_module_details  # type: ignore[attr-defined]
        try:
            get_details(self.name, runpy._Error)  # type: ignore[attr-defined]
        except runpy._Error as error:  # type: ignore[attr-defined]
            raise UsageError(str(error), "give a module that `python -m` could run") from None
        return lambda: self._as_main(self.name, True)

    def _container(self) -> Callable[[], object]:
        path = os.path.abspath(self.name)
        self._settle(path, self.name)
        if pkgutil.get_importer(path) is None or not _has_main(path):
            raise UsageError(f"can't find '__main__' module in {self.name!r}", "give a script in it")
        return lambda: self._as_main("__main__", False)

    def _as_main(self, name: str, alter: bool) -> None:
        _fresh_main(None)
        runpy._run_module_as_main(name, alter)  # type: ignore[attr-defined]

    def _settle(self, folder: str, name: str) -> None:
        sys.argv[:] = [name, *self.args]
        if not sys.flags.safe_path:
            sys.path[0:1] = [folder]


def _fresh_main(loader: object) -> ModuleType:
    main = ModuleType("__main__")
    main.__loader__ = loader  # type: ignore[assignment]
    main.__annotations__ = {}
    main.__dict__["__builtins__"] = builtins
    # The program that started this one is not to be torn down while it still runs.
    _PARENTS.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    return main


def _code(file: str) -> CodeType:
    with io.open_code(file) as stream:
        code: CodeType | None = vars(pkgutil)["read_code"](stream)  # of a .pyc
        if code is None:
            stream.seek(0)
            code = compile(stream.read(), file, "exec", dont_inherit=True)
    return code


def _absolute(name: str) -> str:
    """The path as Python makes it absolute: `./` and links stay in it."""
    return name if os.path.isabs(name) else os.path.join(os.getcwd(), name)


def _is_archive(path: str) -> bool:
    import zipfile

    return not path.endswith((".py", ".pyc")) and zipfile.is_zipfile(path)


def _has_main(path: str) -> bool:
    finder = pkgutil.get_importer(path)
    return finder is not None and finder.find_spec("__main__", None) is not None


def split(args: Sequence[str], with_value: frozenset[str]) -> tuple[list[str], list[str], bool]:
    """(attnscope's own options, the script or module and its arguments, whether it is a module).

    `with_value` are the options that take the next word as their value.
    """
    place = 0
    while place < len(args):
        word = args[place]
        if word == "--":
            return list(args[:place]), list(args[place + 1 :]), False
        if word == "-m" and place + 1 < len(args):
            return list(args[:place]), list(args[place + 1 :]), True
        if word.startswith("-m") and not word.startswith("--") and len(word) > 2:
            return list(args[:place]), [word[2:], *args[place + 1 :]], True
        if word == "-" or not word.startswith("-"):
            return list(args[:place]), list(args[place:]), False
        place += 2 if word in with_value else 1
    return list(args), [], False
