"""User files become modules: package roots, stand-ins for what is missing, scripts that must not run."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import tokenize
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TextIO, TypeVar

from attnscope.errors import UsageError
from attnscope.loader import stubs, toplevel
from attnscope.loader.expressions import printable
from attnscope.sandbox.state import prints_aside, random_state

R = TypeVar("R")
_HELPER = "__attnscope_import__"
_owned: dict[str, ModuleType] = {}


class LoadFailed(UsageError):
    """The file itself raised while it was imported; `original` is what it raised."""

    def __init__(self, message: str, hint: str = "", original: BaseException | None = None) -> None:
        super().__init__(message, hint)
        self.original = original


@dataclass
class Environment:
    """What the user's code needs around it: its import paths, the stand-ins, stdout on stderr."""

    paths: tuple[str, ...]
    console_err: TextIO
    finder: stubs.StubFinder = field(default_factory=stubs.StubFinder)
    stand_ins: dict[str, ModuleType] = field(default_factory=dict)
    argv: tuple[str, ...] = ("attnscope",)
    own: str = ""
    siblings: dict[str, ModuleType] = field(default_factory=dict)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Enter it; `sys.path`, `sys.meta_path`, `sys.argv` and stand-ins are undone at the end."""
        saved_path, saved_argv = list(sys.path), list(sys.argv)
        added = [p for p in self.paths if p not in sys.path]
        before = set(sys.modules)
        sys.path[:0] = added
        sys.argv[:] = self.argv
        sys.meta_path.append(self.finder)
        for name, module in [*self.stand_ins.items(), *self.siblings.items()]:
            sys.modules.setdefault(name, module)
        try:
            with prints_aside(self.console_err):
                yield
        finally:
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self.finder)
            sys.path[:] = saved_path
            sys.argv[:] = saved_argv
            for name, module in list(sys.modules.items()):
                if isinstance(module, stubs.StubModule):
                    self.stand_ins[name] = module
                    del sys.modules[name]
                elif name not in before and self._is_sibling(name, module, added):
                    self.siblings[name] = module
                    del sys.modules[name]

    def _is_sibling(self, name: str, module: ModuleType, added: list[str]) -> bool:
        """A module of the script's own folder: another script's may have the same name."""
        file = getattr(module, "__file__", None)
        inside = isinstance(file, str) and any(file.startswith(p + os.sep) for p in added)
        return inside and name.partition(".")[0] != self.own


@dataclass(frozen=True)
class Loaded:
    """A module made from a user's file, and what was left out or put in place of something missing."""

    module: ModuleType
    tree: ast.Module
    environment: Environment
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    partial: bool = False
    failed: Mapping[str, BaseException] = field(default_factory=dict)


def _run_user_code(action: Callable[[], R]) -> R:
    """Frames above this one are attnscope's: the stand-in finder looks for import guards only below it."""
    return action()


def run_user_code(environment: Environment, action: Callable[[], R]) -> R:
    """Run `action` in `environment` with the random states kept."""
    with random_state(), environment.active(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _run_user_code(action)


class _LazyPackage(ModuleType):
    """A package whose `__init__` runs only when a name of it is asked for that no file of it gives."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        init = folder / "__init__.py"
        self.__path__ = [str(folder)]
        self.__package__ = name
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=str(init), is_package=True)
        if init.is_file():
            self.__file__ = str(init)
        self._ran = not init.is_file()
        self._own_lazy: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            constants = _constants(Path(self.__path__[0]) / "__init__.py") if name not in _PROTOCOL else {}
            if name in constants:
                return constants[name]
            raise AttributeError(name)
        folder = Path(self.__path__[0])
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            raise AttributeError(name)
        if not self._ran:
            self._ran = True
            before = sys.modules.get(self.__name__)
            try:
                exec(
                    compile(_read(folder / "__init__.py"), str(folder / "__init__.py"), "exec"), self.__dict__
                )
            except KeyboardInterrupt:
                raise
            except BaseException:
                pass  # what the name needs decides: the import that asked fails below, and is stood in for
            after = sys.modules.get(self.__name__)
            if after is not None and after is not before and after is not self:
                sys.modules[self.__name__] = self
                self._own_lazy = after
        if self._own_lazy is not None:
            with contextlib.suppress(Exception):
                return getattr(self._own_lazy, name)
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


_PROTOCOL = {
    "__path__",
    "__file__",
    "__spec__",
    "__loader__",
    "__all__",
    "__wrapped__",
    "__bases__",
    "__class__",
}


@functools.cache
def _constants(init: Path) -> dict[str, Any]:
    """`__version__` and the like: names that a package's `__init__` gives a constant."""
    try:
        tree = ast.parse(_read(init))
    except (OSError, SyntaxError, ValueError):
        return {}
    return {
        t.id: n.value.value
        for n in tree.body
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)
        for t in n.targets
        if isinstance(t, ast.Name)
    }


def _read(path: Path) -> str:
    with tokenize.open(path) as file:
        return file.read()


def parse_file(path: Path) -> ast.Module:
    """The AST of a Python file.

    Raises:
        UsageError: it cannot be read, or is no Python.
    """
    shown = printable(path)
    try:
        tree = ast.parse(_read(path), filename=str(path))
        compile(
            tree, str(path), "exec", dont_inherit=True
        )  # finds what parsing lets pass: a name given twice
        return tree
    except FileNotFoundError:
        raise UsageError(f"there is no file `{shown}`") from None
    except OSError as error:
        raise UsageError(f"`{shown}` cannot be read: {printable(error.strerror or error)}") from None
    except SyntaxError as error:
        raise UsageError(
            f"`{shown}`:{error.lineno or 0} is not valid Python: {printable(error.msg)}"
        ) from None
    except (UnicodeDecodeError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"`{shown}` is not a Python file: {printable(error)}") from None


def _dotted_name(path: Path, tree: ast.Module) -> tuple[list[str], Path]:
    """The module's dotted name as parts, and the folder that its package lies in."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    levels = max((n.level for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)), default=0)
    is_package = path.name == "__init__.py"
    while len(parts) - (not is_package) < levels and folder != folder.parent:
        parts.insert(0, folder.name)
        folder = folder.parent
    return parts, folder


def _repository_roots(tree: ast.Module, path: Path) -> list[str]:
    """Folders above the file from which its absolute imports are found: `from models.layers import x`."""
    tops = {
        n.module.partition(".")[0]
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom) and n.module and not n.level
    }
    tops |= {a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    roots = []
    for top in sorted(tops - set(sys.stdlib_module_names) - set(sys.modules)):
        if importlib.machinery.PathFinder.find_spec(top, [str(path.parent), *sys.path]) is None:
            for folder in list(path.parents)[1:6]:
                holds = (folder / top).is_dir() and any((folder / top).glob("*.py"))
                if (
                    holds
                    or ((folder / top).is_dir() and path.is_relative_to(folder / top))
                    or (folder / f"{top}.py").is_file()
                ):
                    roots.append(str(folder))
                    break
    return roots


def _forget(top: str) -> None:
    for name in [n for n in _owned if n == top or n.startswith(top + ".")]:
        if sys.modules.get(name) is _owned[name]:
            del sys.modules[name]
        del _owned[name]


def _make_parents(parts: list[str], root: Path) -> None:
    for i in range(1, len(parts)):
        name = ".".join(parts[:i])
        folder = root.joinpath(*parts[:i])
        if name not in sys.modules:
            package = _LazyPackage(name, folder)
            sys.modules[name] = _owned[name] = package
            if i > 1:
                setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], package)


def _free_name(parts: list[str], root: Path) -> list[str]:
    """The same parts, or ones with another first name where a different module has it already."""
    first = sys.modules.get(parts[0])
    if first is None:
        return parts
    if len(parts) > 1:
        folder = str(root / parts[0])
        if folder in [str(p) for p in getattr(first, "__path__", [])]:
            return parts
        if parts[0] in _owned:
            _forget(parts[0])
            return parts
    n = 2
    while f"{parts[0]}__{n}" in sys.modules:
        n += 1
    return [f"{parts[0]}__{n}", *parts[1:]]


def load_file(path: Path, console_err: TextIO) -> Loaded:
    """The module of a Python file, without running its package's `__init__` or a script's own work.

    Raises:
        UsageError: the file is missing or no Python.
        LoadFailed: an import-time statement that the file needs raised.
    """
    path = Path(path).absolute()
    tree = parse_file(path)
    linecache.checkcache(str(path))
    parts, root = _dotted_name(path, tree)
    parts = _free_name(parts, root)
    name = ".".join(parts)
    paths = list(dict.fromkeys((str(root), str(path.parent), *_repository_roots(tree, path))))
    env = Environment(tuple(paths), console_err, argv=(str(path),), own=parts[0])
    env.finder.starred.extend(_unbound(tree))
    before = set(sys.modules)

    def load() -> Loaded:
        _make_parents(parts, root)
        if name in sys.modules and name in _owned and not isinstance(sys.modules[name], _LazyPackage):
            del sys.modules[name]
        return _Loading(path, tree, name, env).run()

    try:
        loaded = run_user_code(env, load)
    finally:
        for new in set(sys.modules) - before:
            file = getattr(sys.modules[new], "__file__", None)
            if isinstance(file, str) and any(file.startswith(p) for p in paths):
                _owned[new] = sys.modules[new]
    _say_missing(env, loaded.notes)
    return loaded


def _say_missing(env: Environment, notes: tuple[str, ...]) -> None:
    tops = [(full.partition(".")[0], full) for full in env.finder.missing]
    shown = list(dict.fromkeys(printable(full if top in sys.modules else top) for top, full in tops))
    if shown:
        env.console_err.write(f"note: not installed, a stand-in takes its place: {', '.join(shown)}\n")
    for note in notes:
        env.console_err.write(f"note: {note}\n")


class _Loading:
    """One file on its way to a module: whole if its top level only defines, else its definitions alone."""

    def __init__(self, path: Path, tree: ast.Module, name: str, env: Environment) -> None:
        self.path = path
        self.tree = tree
        self.name = name
        self.env = env
        self.refused: dict[str, list[str]] = {}
        self.broken: dict[str, str] = {}
        self.failed: dict[str, BaseException] = {}
        self.replaced: set[tuple[int, int]] = set()

    def run(self) -> Loaded:
        if toplevel.runs_only_definitions(self.tree):
            try:
                module = self._whole()
                return self._finish(module, partial=False)
            except (KeyboardInterrupt, UsageError):
                raise
            except BaseException:
                pass  # one statement that fails may have nothing to do with the class: each is tried alone
        return self._finish(self._statements(), partial=True)

    def _finish(self, module: ModuleType, partial: bool) -> Loaded:
        vars(module).pop(_HELPER, None)
        unset = tuple(sorted(_unset_globals(self.tree, self.path, vars(module))))
        if unset and any(isinstance(m, stubs.StubModule) for m in sys.modules.values()):
            for starred in self._starred_names() & set(unset):
                vars(module)[starred] = stubs.attribute(f"{self._star_source()}.{starred}")
            unset = tuple(n for n in unset if n not in vars(module))
        notes = tuple(
            f"cannot be imported ({reason}), a stand-in takes its place: "
            + printable(", ".join(dict.fromkeys(names)), 300)
            for reason, names in self.refused.items()
        )
        return Loaded(module, self.tree, self.env, unset, notes, partial, self.failed)

    def _starred_names(self) -> set[str]:
        return set(self.env.finder.starred) if self._star_source() else set()

    def _star_source(self) -> str:
        for node in self.tree.body:
            if (
                isinstance(node, ast.ImportFrom)
                and node.names[0].name == "*"
                and isinstance(sys.modules.get(node.module or ""), stubs.StubModule)
            ):
                return node.module or ""
        return ""

    def _new_module(self) -> ModuleType:
        self.refused.clear()
        loader = importlib.machinery.SourceFileLoader(self.name, str(self.path))
        is_package = self.path.name == "__init__.py"
        spec = importlib.util.spec_from_file_location(
            self.name,
            self.path,
            loader=loader,
            submodule_search_locations=[str(self.path.parent)] if is_package else None,
        )
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        vars(module)[_HELPER] = self._import_name
        sys.modules[self.name] = _owned[self.name] = module
        parent, _, last = self.name.rpartition(".")
        if parent and parent in sys.modules:
            setattr(sys.modules[parent], last, module)
        return module

    def _import_name(self, source: str, level: int, name: str) -> Any:
        """One name of an import statement that failed as a whole, or its stand-in."""
        base = self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]
        full = importlib.util.resolve_name("." * level + source, base) if level else source
        path = f"{full}.{name}" if name else full
        if full in self.broken:
            self.refused.setdefault(self.broken[full], []).append(printable(path))
            return stubs.attribute(path)
        module: ModuleType | None = None
        try:
            module = importlib.import_module(full)
            if not name:
                return module
            try:
                value: Any = getattr(module, name)
                return value
            except AttributeError:
                return importlib.import_module(f"{full}.{name}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = printable(f"{type(error).__name__}: {error}", 100)
            if module is None:
                self.broken[full] = reason
            self.refused.setdefault(reason, []).append(printable(path))
            return stubs.attribute(path)

    def _whole(self) -> ModuleType:
        while True:
            tree = self._mended_tree()
            code = compile(tree, str(self.path), "exec", dont_inherit=True)
            module = self._new_module()
            try:
                exec(code, vars(module))
                return module
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if not self._mend_import(error):
                    raise

    def _mended_tree(self) -> ast.Module:
        if not self.replaced:
            return self.tree
        replaced = self.replaced

        class Mend(ast.NodeTransformer):
            def visit_Import(self, node: ast.Import) -> Any:
                return _calls_for(node) if (node.lineno, node.col_offset) in replaced else node

            def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
                return _calls_for(node) if (node.lineno, node.col_offset) in replaced else node

        fresh = ast.parse(_read(self.path), filename=str(self.path))
        mended: ast.Module = ast.fix_missing_locations(Mend().visit(fresh))
        return mended

    def _mend_import(self, error: BaseException) -> bool:
        """Mark the import statement of this file at which `error` came out; False when it was none."""
        line = _line_in(error, str(self.path))
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)) and line is not None:
                key = (node.lineno, node.col_offset)
                inside = node.lineno <= line <= (node.end_lineno or node.lineno)
                if inside and key not in self.replaced and not _is_future(node):
                    self.replaced.add(key)
                    return True
        return False

    def _statements(self) -> ModuleType:
        """Imports, definitions and simple assignments, one by one; assignments that raise leave no name."""
        module = self._new_module()
        flags = 0
        kept = toplevel.definitions(self.tree)
        for node in kept:
            if isinstance(node, ast.ImportFrom) and _is_future(node):
                import __future__

                for alias in node.names:
                    feature = getattr(__future__, alias.name, None)
                    flags |= feature.compiler_flag if feature is not None else 0
        for node in kept:
            self._statement(node, module, flags)
        return module

    def _statement(self, node: ast.stmt, module: ModuleType, flags: int) -> None:
        for _ in range(20):
            code = compile(
                ast.Module(body=[node], type_ignores=[]), str(self.path), "exec", flags, dont_inherit=True
            )
            try:
                exec(code, vars(module))
                return
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if isinstance(node, (ast.Import, ast.ImportFrom)) and not _is_future(node):
                    for call in _calls_for(node):
                        ast.fix_missing_locations(call)
                        exec(
                            compile(ast.Module(body=[call], type_ignores=[]), str(self.path), "exec"),
                            vars(module),
                        )
                    return
                if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    return
                name = error.name if isinstance(error, NameError) else None
                if not name or name in vars(module) or name not in set(_bound_at_top(self.tree)):
                    self.failed[node.name] = error
                    return
                from attnscope.loader.names import usual_value

                vars(module)[name] = usual_value(name)


def load_failed(file: Path, error: BaseException) -> LoadFailed:
    """What is said when a definition that is needed raised at import time."""
    line = _line_in(error, str(file), deep=True)
    where = f"{printable(file)}:{line}" if line else printable(file)
    return LoadFailed(
        f"`{where}` raises {type(error).__name__} when it is imported: {printable(error)}", "", error
    )


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _line_in(error: BaseException, file: str, deep: bool = False) -> int | None:
    """The line of the file's own top level (`deep`: of its innermost frame) at which `error` came out."""
    line = None
    tb = error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == file and (deep or tb.tb_frame.f_code.co_name == "<module>"):
            line = tb.tb_lineno
        tb = tb.tb_next
    return line


def _calls_for(node: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
    """Assignments that do an import statement's work name by name: `x = helper("pkg.mod", 0, "x")`."""
    made: list[ast.stmt] = []
    for alias in node.names:
        if alias.name == "*":
            continue
        if isinstance(node, ast.Import):
            source, level, name = alias.name, 0, ""
            target = alias.asname or alias.name.partition(".")[0]
            if alias.asname is None:
                source = target
        else:
            source, level, name = node.module or "", node.level, alias.name
            target = alias.asname or alias.name
        call = ast.Call(
            func=ast.Name(id=_HELPER, ctx=ast.Load()),
            args=[ast.Constant(source), ast.Constant(level), ast.Constant(name)],
            keywords=[],
        )
        made.append(
            ast.copy_location(ast.Assign(targets=[ast.Name(id=target, ctx=ast.Store())], value=call), node)
        )
    return made or [ast.copy_location(ast.Pass(), node)]


def _unbound(tree: ast.Module) -> list[str]:
    """Names that a file reads and nowhere binds: what a `from x import *` must have given."""
    read, bound = set(), set(dir(builtins))
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name):
                bound.add(name)
            case ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias():
                bound.add((node.asname or node.name).partition(".")[0])
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return sorted(n for n in read - bound if not n.startswith("__"))


def _unset_globals(tree: ast.Module, path: Path, known: dict[str, Any]) -> set[str]:
    """Names that functions of the file read from the module and that are not there."""
    import dis

    missing: set[str] = set()
    todo: list[CodeType] = [compile(tree, str(path), "exec", dont_inherit=True)]
    while todo:
        code = todo.pop()
        todo.extend(c for c in code.co_consts if isinstance(c, CodeType))
        if code.co_name != "<module>":
            missing.update(
                i.argval
                for i in dis.get_instructions(code)
                if i.opname == "LOAD_GLOBAL" and i.argval not in known
            )
    bound = set(_bound_at_top(tree))
    return {n for n in missing if n in bound and not hasattr(builtins, n) and not n.startswith("__")}


def _bound_at_top(tree: ast.Module) -> Iterator[str]:
    """Names that the file's own top level binds somewhere, or a `global` statement, or a `*` may bring.

    Any other name is defined nowhere, and to read it is the NameError that it is.
    """
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name="*"):
                yield from _unbound(tree)
            case ast.alias():
                yield (node.asname or node.name).partition(".")[0]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
                todo.extend(n for n in ast.walk(node) if isinstance(n, ast.Global))
                continue
            case ast.Global(names=names):
                yield from names
        todo.extend(ast.iter_child_nodes(node))
