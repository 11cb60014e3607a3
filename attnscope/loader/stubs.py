"""What stands in for a third-party import that is not installed and that the class may not need.

A stand-in is as permissive as Python allows while a file is loaded and a module is constructed (decorator,
base class, annotation, `from x import *`). It computes nothing: where a tensor reaches it, or a module or a
number is needed of it, `MissingImport` says which package is to be installed.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import linecache
import re
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.errors import UsageError
from attnscope.loader.expressions import printable

_HERE = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
LOAD_BOUNDARY = "_run_user_code"
_CATCHES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_MODULE_WORDS = (
    "model",
    "module",
    "layer",
    "attention",
    "attn",
    "block",
    "norm",
    "linear",
    "embedding",
    "conv",
    "encoder",
    "decoder",
    "transformer",
    "mlp",
)
_PLAIN_WORDS = ("mixin", "config", "output", "args", "cache", "dataclass", "enum", "settings")


class MissingImport(ImportError):
    """The class called something of a package that is not installed, so what it computes is unknown."""

    def __init__(self, path: str, where: tuple[str, int] | tuple[()] | None = None) -> None:
        self.path = path
        self.where = where if where is not None else _user_line()
        at = f" at line {self.where[1]}" if self.where else ""
        super().__init__(f"`{package_of(path)}` is not installed, and it is called{at}: install it")


def to_install(error: MissingImport, file: str | None) -> UsageError:
    """What the user is told; a line of another file than `file` is named with it."""
    text = printable(error)
    if error.where and (file is None or Path(file).absolute() != Path(error.where[0]).absolute()):
        text = text.replace(" at line ", f" at {printable(Path(error.where[0]).name)}:")
    return UsageError(text)


def package_of(path: str) -> str:
    """What is to be installed for `path`: its package, or the missing module of one that is there."""
    top = path.partition(".")[0]
    there = sys.modules.get(top)
    return top if there is None or isinstance(there, StubModule) else path.rpartition(".")[0] or top


def _user_line() -> tuple[str, int] | None:
    """The line of the user's that is running: the innermost that is neither ours nor PyTorch's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != LOAD_BOUNDARY:
        file = frame.f_code.co_filename
        if not file.startswith((_HERE, _TORCH, "<")):
            return file, frame.f_lineno
        frame = frame.f_back
    return None


def _in_forward() -> bool:
    """A module is being called, not constructed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != LOAD_BOUNDARY:
        if frame.f_code.co_name == "_call_impl":
            return True
        frame = frame.f_back
    return False


class ModuleStandIn(nn.Module):
    """Base class in place of a missing one that must be a module (`PreTrainedModel`, `LightningModule` …)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        config = args[0] if args else kwargs.get("config")
        if config is not None and not isinstance(config, (int, float, str, nn.Module)):
            self.config = config

    def post_init(self) -> None:
        """What transformers calls at the end of a constructor; here nothing is left to do."""

    def init_weights(self) -> None:
        """As `post_init`."""

    def save_hyperparameters(self, *args: Any, **kwargs: Any) -> None:
        """What Lightning calls in a constructor; it only remembers arguments."""


class PlainStandIn:
    """Base class in place of a missing one that is no module: keeps keyword arguments as attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Class keywords of the missing base (`total=False`, `table=True`) mean nothing here."""


class Stub:
    """A name of a package that is not installed."""

    def __init__(self, path: str, computed: bool = False) -> None:
        self.__dict__["_stub_path"] = path
        self.__dict__["_stub_computed"] = computed
        self.__dict__["__name__"] = path.rpartition(".")[2]
        self.__dict__["__qualname__"] = self.__dict__["__name__"]
        self.__dict__["__doc__"] = None

    def __repr__(self) -> str:
        return f"<{self._stub_path}: not installed>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        self._needs_package()
        value = attribute(f"{self._stub_path}.{name}")
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType)):
            return Stub(self._stub_path) if _is_factory(sys._getframe(1), args[0].__name__) else args[0]
        if len(args) == 1 and args[0] is None and not kwargs:
            return None
        reached = any(_holds_tensor(a) for a in (*args, *kwargs.values()))
        if reached and _in_forward():
            raise MissingImport(self._stub_path)
        return Stub(self._stub_path, computed=reached)

    def _needs_package(self) -> None:
        """What was computed from a tensor is asked for: only the real package knows it."""
        if self._stub_computed:
            raise MissingImport(self._stub_path)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (base_class(self._stub_path),)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        stub = next((a for a in args if isinstance(a, Stub)), None)
        raise MissingImport(stub._stub_path if stub is not None else "a missing package")

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __subclasscheck__(self, subclass: Any) -> bool:
        return False

    def __getitem__(self, key: Any) -> Any:
        self._needs_package()
        return Stub(self._stub_path)

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __fspath__(self) -> str:
        return f"/not-installed/{self._stub_path}"

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        self._needs_package()
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, item: object) -> bool:
        return False

    def __enter__(self) -> Stub:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def _number(self, *others: object) -> Any:
        """A number is needed: only the real package knows it."""
        raise MissingImport(self._stub_path)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _number
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _number
    __pow__ = __rpow__ = __index__ = __int__ = __float__ = _number


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(isinstance(item, Tensor) for item in value)
    return isinstance(value, Tensor)


def _is_factory(frame: FrameType, argument: str) -> bool:
    """`@missing(function)` makes a decorator from its argument; bare `@missing` gives the function back."""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    given = re.sub(r"'[^']*'|\"[^\"]*\"", "", text.partition("(")[2])
    return text.startswith("@") and re.search(rf"\b{re.escape(argument)}\b", given) is not None


_BASES: dict[str, type] = {}


def base_class(path: str) -> type:
    """The class that a user's class gets in place of the missing base `path`; one per name."""
    if path not in _BASES:
        name = path.rpartition(".")[2]
        low = name.lower()
        wants_module = any(w in low for w in _MODULE_WORDS) and not any(w in low for w in _PLAIN_WORDS)
        parent = ModuleStandIn if wants_module or low.endswith("modelmixin") else PlainStandIn
        _BASES[path] = type(name, (parent,), {"__module__": path.rpartition(".")[0]})
    return _BASES[path]


def attribute(path: str) -> Any:
    """What a missing package answers for one of its names: an exception class, or a `Stub`."""
    name = path.rpartition(".")[2]
    if name.endswith(("Error", "Exception", "Warning")) and name[:1].isupper():
        return type(name, (Exception,), {})
    return Stub(path)


def missing_in(error: BaseException) -> MissingImport | None:
    """Where an exception came of a stand-in: what it is a stand-in for, and the user's line.

    It did where the stand-in was among the values of the frames below the user's last line (PyTorch's own
    `Sequential` refuses what is no module), where that line reads one, or where a module lacks what only
    the missing class that it inherits from could give it.
    """
    if isinstance(error, MissingImport):
        return error
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
    if frames and frames[-1].f_code.co_name == "_forward_unimplemented":
        return inherits_missing(type(frames[-1].f_locals.get("self")))
    users = [i for i, f in enumerate(frames) if not f.f_code.co_filename.startswith((_HERE, _TORCH, "<"))]
    if not users:
        return None
    last = users[-1]
    where = frames[last].f_code.co_filename, lines[last]
    inner = [v for f in frames[last + 1 :] for v in f.f_locals.values()]
    for value in [*inner, *_read_by(frames[last], lines[last])]:
        found = next((s for s in _few(value) if type(s) is Stub), None)
        if found is not None:
            return MissingImport(found._stub_path, where)
    lacking = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
    return inherits_missing(type(lacking), where) if lacking is not None else None


def inherits_missing(cls: type, where: tuple[str, int] | None = None) -> MissingImport | None:
    """The missing base class of a class, if it has one."""
    paths = {made: path for path, made in _BASES.items()}
    return next((MissingImport(paths[base], where or ()) for base in cls.__mro__ if base in paths), None)


def _few(value: Any) -> Sequence[Any]:
    return value[:20] if type(value) in (tuple, list) else (value,)


def _read_by(frame: FrameType, line: int) -> Iterator[Any]:
    """The values of the names and attributes that a line reads, as far as reading them runs no code."""
    text = linecache.getline(frame.f_code.co_filename, line)
    for chain in re.findall(r"[A-Za-z_][\w.]*", text):
        first, *rest = chain.split(".")
        value = frame.f_locals.get(first, frame.f_globals.get(first))
        for name in rest:
            value = getattr(value, "__dict__", {}).get(name) if not isinstance(value, type) else None
        yield value


class StubModule(ModuleType):
    """A module that is not installed. `from it import *` gives the names that the loaded file lacks."""

    def __init__(self, name: str, starred: Sequence[str]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__all__ = list(starred)
        self.__version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = attribute(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Stub(self.__name__)(*args, **kwargs)


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last on `sys.meta_path` while user code is loaded: answers for what nothing else finds.

    An import that the code itself guards (`try: … except ImportError`, `find_spec(…) is None`) is
    answered as Python would, so that the user's own fallback runs.
    """

    def __init__(self, own: Sequence[str] = ()) -> None:
        self.missing: list[str] = []
        self.starred: list[str] = []
        self.own = tuple(own)
        self._guards: dict[str, list[tuple[int, int]]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._is_guarded(sys._getframe(1)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = spec.name
        parent = sys.modules.get(name.rpartition(".")[0])
        if not isinstance(parent, StubModule) and name not in self.missing:
            self.missing.append(name)
        return StubModule(name, self.starred)

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in has no code."""

    def _is_guarded(self, frame: FrameType | None) -> bool:
        while frame is not None:
            name, file = frame.f_code.co_name, frame.f_code.co_filename
            if name == LOAD_BOUNDARY:
                return False
            if name == "find_spec" and file.endswith("util.py") and "importlib" in file:
                return True
            if not file.startswith(("<frozen", _HERE)):
                line = frame.f_lineno
                if any(start <= line <= end for start, end in self._guarded_lines(file)):
                    return True
            frame = frame.f_back
        return False

    def _guarded_lines(self, file: str) -> list[tuple[int, int]]:
        if file not in self._guards:
            try:
                tree = ast.parse("".join(linecache.getlines(file)))
            except (SyntaxError, ValueError, RecursionError):
                tree = ast.Module(body=[], type_ignores=[])
            self._guards[file] = [span for node in ast.walk(tree) for span in _guard(node)]
        return self._guards[file]


def _guard(node: ast.AST) -> list[tuple[int, int]]:
    """The lines of a `try` body whose handlers catch an import that fails, or of a `with suppress(…)`."""
    if isinstance(node, ast.Try) and any(_catches(h.type) for h in node.handlers):
        return [(node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)]
    if isinstance(node, ast.With) and any("suppress" in ast.unparse(i.context_expr) for i in node.items):
        return [(node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)]
    return []


def _catches(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(ast.unparse(n).rpartition(".")[2] in _CATCHES for n in names)
