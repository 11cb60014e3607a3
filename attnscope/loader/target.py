"""TARGET: a built-in layer, `FILE.py:CLASS`, `pkg.mod:CLASS`, `FILE.py`, or a function that makes it."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from torch import nn

from attnscope.errors import UsageError
from attnscope.loader import importing
from attnscope.loader.expressions import nearest, printable
from attnscope.loader.importing import Environment, Loaded
from attnscope.loader.stubs import StubFinder, inherits_missing, to_install

_ATTENTION = re.compile(r"softmax|scaled_dot_product_attention|MultiheadAttention|memory_efficient_attention")


class SeveralClasses(UsageError):
    """A file was named, and more than one of its classes looks like attention. `targets` name each."""

    def __init__(self, where: str, names: Sequence[str]) -> None:
        shown = ", ".join(f"`{printable(name)}`" for name in names)
        super().__init__(
            f"`{printable(where)}` has several attention classes: {shown}",
            "name one" + _say_how(where, names),
        )
        self.targets = tuple(f"{where}:{name}" for name in names)


@dataclass(frozen=True)
class Target:
    """What the user pointed at. `factory` is a class, function or instance, `layer` a built-in's name.

    `unset` are names that the file's functions read and that only running the script would have made.
    """

    text: str
    name: str
    factory: Any
    module: ModuleType
    environment: Environment
    file: str | None = None
    layer: str | None = None
    tree: ast.Module = field(default_factory=lambda: ast.Module(body=[], type_ignores=[]))
    unset: tuple[str, ...] = ()
    partial: bool = False


def load_target(text: str, *, console_err: TextIO | None = None) -> Target:
    """Parse TARGET and load what it names; the class is not constructed.

    Args:
        text: as the user wrote it.
        console_err: where notes, warnings and the user's own prints go (default: standard error).

    Raises:
        UsageError: there is no such file, module or class; nearest names are given.
    """
    err = console_err if console_err is not None else sys.stderr
    where, name = _split(text)
    built_in = _layer(where, err) if name is None else None
    if built_in is not None:
        return built_in
    loaded = _load(where, name, text, err)
    if name is None:
        name = _only_class(loaded, where)
    factory = _find(loaded, name, where)
    file = getattr(loaded.module, "__file__", None)
    return Target(
        text,
        name,
        factory,
        loaded.module,
        loaded.environment,
        file,
        None,
        loaded.tree,
        loaded.unset,
        loaded.partial,
    )


def _split(text: str) -> tuple[str, str | None]:
    """`where:name`, told from a Windows drive and from a file without a class."""
    where, colon, name = text.rpartition(":")
    if not colon or "/" in name or "\\" in name or (len(where) == 1 and where.isalpha()):
        return text, None
    if not name:
        raise UsageError(f"`{printable(text)}` names no class after the colon", "write FILE.py:CLASS")
    return where, name


def _layer_names() -> list[str]:
    from attnscope.layers import LAYERS

    return list(LAYERS)


def _layer(name: str, err: TextIO) -> Target | None:
    from attnscope.layers import LAYERS

    if name not in LAYERS:
        return None
    dotted, _, cls = LAYERS[name].target.partition(":")
    module = importlib.import_module(dotted)
    file = str(module.__file__)
    return Target(
        name,
        cls,
        getattr(module, cls),
        module,
        Environment((), err),
        file,
        layer=name,
        tree=importing.parse_file(Path(file)),
    )


def _load(where: str, name: str | None, text: str, err: TextIO) -> Loaded:
    if where.endswith(".py") or "/" in where or Path(where).is_file():
        path = Path(where)
        if path.is_dir():
            raise UsageError(f"`{printable(where)}` is a folder", "name a file in it: FOLDER/FILE.py:CLASS")
        if not path.exists():
            siblings = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
            raise UsageError(f"there is no file `{printable(where)}`", nearest(path.name, siblings))
        if not path.is_file():
            raise UsageError(f"`{printable(where)}` is a pipe or a device", "give a Python file")
        return importing.load_file(path, err)
    if name is None and "." not in where and _origin(where) is None:
        hint = nearest(where, [*_layer_names(), *(p.name for p in Path().glob("*.py"))])
        raise UsageError(
            f"`{printable(where)}` is neither a built-in layer, a file nor a module",
            hint or "write FILE.py:CLASS or pkg.mod:CLASS",
        )
    return _load_dotted(where, err)


def _origin(dotted: str) -> Path | None:
    """The file of a dotted module name, found without running any `__init__`."""
    search: list[str] | None = [str(Path.cwd()), *sys.path]
    parts = dotted.split(".")
    for i in range(len(parts)):
        try:
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[: i + 1]), search)
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None:
            return None
        if i == len(parts) - 1:
            return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
        search = list(spec.submodule_search_locations or ())
    return None


def _load_dotted(dotted: str, err: TextIO) -> Loaded:
    shown = printable(dotted)
    origin = _origin(dotted)
    if origin is None:
        raise UsageError(
            f"there is no module `{shown}`", "modules are looked for here and where Python looks"
        )
    tree = importing.parse_file(origin)
    env = Environment((str(Path.cwd()),), err, argv=(str(origin),))
    from attnscope.loader import toplevel

    if dotted in sys.modules or toplevel.runs_only_definitions(tree):
        try:
            module = importing.run_user_code(
                Environment(env.paths, err, finder=_NoStandIns(), argv=env.argv),
                lambda: importlib.import_module(dotted),
            )
            return Loaded(module, tree, env)
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass  # its package needs something that is not installed: the file alone may do without it
    return importing.load_file(origin, err)


class _NoStandIns(StubFinder):
    """Finds nothing: an ordinary import is tried first where a module is named by its dotted name."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        return None


def _classes(loaded: Loaded) -> dict[str, type[nn.Module]]:
    """The module classes that the file itself defines, in order."""
    return {
        n: v
        for n, v in vars(loaded.module).items()
        if isinstance(v, type) and issubclass(v, nn.Module) and v.__module__ == loaded.module.__name__
    }


def attention_classes(loaded: Loaded) -> list[str]:
    """Names of the file's module classes that look like attention, by name or by what their source calls."""
    nodes = {n.name: n for n in loaded.tree.body if isinstance(n, ast.ClassDef)}
    return [name for name in _classes(loaded) if _looks_like_attention(name, nodes.get(name))]


def _looks_like_attention(name: str, node: ast.ClassDef | None) -> bool:
    source = ast.unparse(node) if node is not None else ""
    return bool(_ATTENTION.search(source) or re.search(r"attn|attention", name, re.IGNORECASE))


def may_have_attention(path: Path) -> bool:
    """Whether some class of a file looks like attention; the file is read, not run, and may be broken."""
    try:
        tree = importing.parse_file(path)
    except UsageError:
        return False
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return any(_looks_like_attention(node.name, node) for node in classes)


def _only_class(loaded: Loaded, where: str) -> str:
    names = attention_classes(loaded)
    if not names and loaded.failed:
        raise importing.load_failed(Path(str(loaded.module.__file__)), next(iter(loaded.failed.values())))
    if not names:
        names = list(_classes(loaded))
        if len(names) != 1:
            shown = ", ".join(f"`{printable(n)}`" for n in names) or "no nn.Module at all"
            raise UsageError(
                f"no class of `{printable(where)}` looks like attention",
                f"it has {shown}" + _say_how(where, names),
            )
    if len(names) > 1:
        raise SeveralClasses(where, names)
    return names[0]


def _say_how(where: str, names: Sequence[str]) -> str:
    return f": {printable(where)}:{printable(names[0])}" if names else ""


def _find(loaded: Loaded, name: str, where: str) -> Callable[..., Any] | nn.Module:
    value: Any = loaded.module
    for part in name.split("."):
        try:
            value = importing.run_user_code(loaded.environment, partial(getattr, value, part))
        except KeyboardInterrupt:
            raise
        except BaseException:
            if part in loaded.failed:
                raise importing.load_failed(Path(str(loaded.module.__file__)), loaded.failed[part]) from None
            known = list(_classes(loaded)) or [n for n in vars(loaded.module) if not n.startswith("_")]
            functions = [n.name for n in loaded.tree.body if isinstance(n, ast.FunctionDef)]
            close = nearest(part, [*known, *functions])
            raise UsageError(f"`{printable(where)}` has no class `{printable(name)}`", close) from None
    if isinstance(value, type) and not issubclass(value, nn.Module):
        missing = inherits_missing(value)
        if missing is not None:
            raise to_install(missing, None)
        kinds = ", ".join(f"`{printable(n)}`" for n in list(_classes(loaded))[:8])
        raise UsageError(
            f"`{printable(name)}` is no nn.Module", f"the module classes there are {kinds}" if kinds else ""
        )
    if not isinstance(value, nn.Module) and not callable(value):
        raise UsageError(
            f"`{printable(name)}` is neither a class nor a function that returns a module",
            nearest(name, _classes(loaded)),
        )
    return value  # type: ignore[no-any-return]
