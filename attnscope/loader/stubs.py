"""What stands in for a third-party import that is not installed and that the class may not need.

A stand-in is as permissive as Python allows while a file is loaded (decorator, base class, annotation,
`from x import *`), and says so honestly when a tensor reaches it: then the class needs the real thing.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import linecache
import re
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torch import Tensor, nn

from attnscope.loader import standins

_HERE = str(Path(__file__).parent)
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

    def __init__(self, path: str) -> None:
        super().__init__(f"`{path.partition('.')[0]}` is not installed, and `{path}` is called")
        self.path = path


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
        if args and isinstance(args[0], nn.Module) and sum(isinstance(a, nn.Module) for a in args) == 1:
            return args[0]  # a wrapper (`quant_noise`, `checkpoint_wrapper`) computes what it wraps
        return Stub(self._stub_path, computed=any(isinstance(a, Tensor) for a in (*args, *kwargs.values())))

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
    """What a missing package answers for one of its names: a known equivalent, an exception, or a `Stub`."""
    name = path.rpartition(".")[2]
    own = {"einops": standins.EINOPS, "timm": standins.TIMM}.get(path.partition(".")[0], {})
    for table in (own, standins.KNOWN):
        if name in table:
            return table[name]
    pattern = next(
        (made for end, made in standins.ENDINGS if name.endswith(end) and name[:1].isupper()), None
    )
    if pattern is not None:
        return pattern
    if name.endswith(("Error", "Exception", "Warning")) and name[:1].isupper():
        return type(name, (Exception,), {})
    return Stub(path)


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
