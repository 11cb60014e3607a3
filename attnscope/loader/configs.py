"""Configuration objects for constructors that take their sizes as one argument.

In this order: the class that the annotation names, a `…Config` of the same file or package, a dict that the
file holds when keys are read, and an object that answers each attribute with the field's usual value.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from attnscope.loader.names import is_size, plain_value, role_of
from attnscope.loader.sizes import Sizes, as_size
from attnscope.loader.usage import Usage

_CONFIG_CLASS = re.compile(
    r"(Config|Args|Settings|HParams|Hparams|Params|Options|Cfg|Configuration|Arguments)$"
)


class GuessedConfig:
    """Answers every attribute and key with the field's usual value, and remembers which were read."""

    def __init__(
        self, answer: Callable[[str], Any], given: Mapping[str, Any], absent: frozenset[str] = frozenset()
    ) -> None:
        self.__dict__["_answer"] = answer
        self.__dict__["_absent"] = absent
        self.__dict__["_guessed"] = {}
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_answer", "_absent", "_guessed") or name in self._absent:
            raise AttributeError(name)
        value = self._answer(name)
        self._guessed[name] = value
        self.__dict__[name] = value
        return value

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> list[str]:
        """Names that were given or read so far."""
        return [k for k in self.__dict__ if k not in ("_answer", "_absent", "_guessed")]

    def items(self) -> list[tuple[str, Any]]:
        """Names and values so far."""
        return [(k, self.__dict__[k]) for k in self.keys()]

    def values(self) -> list[Any]:
        """Values so far."""
        return [self.__dict__[k] for k in self.keys()]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a name that was given or read, else `default` (and where there is none, a guess)."""
        if key in self.keys() or (default is None and key not in self._absent and is_size(role_of(key))):
            return getattr(self, key)
        return default

    def to_dict(self) -> dict[str, Any]:
        """As a plain dict."""
        return dict(self.items())

    def __deepcopy__(self, memo: dict[int, Any]) -> GuessedConfig:
        return GuessedConfig(self._answer, {k: copy.deepcopy(v, memo) for k, v in self.items()}, self._absent)

    def __repr__(self) -> str:
        return f"config({', '.join(f'{k}={v!r}' for k, v in self.items())})"


@dataclasses.dataclass(frozen=True)
class ConfigPlan:
    """How the argument `parameter` will be made: `kind` is class, dict or guess; `roles` are its fields'."""

    parameter: str
    kind: str
    source: Any
    read: frozenset[str]
    fields: Mapping[str, Any]
    roles: Mapping[str, str | None]
    usage: Usage
    bases: tuple[str, ...]
    keep: bool = True

    def replaces(self, role: str | None, default: Any) -> bool:
        """A size by default is another one only where the defaults are too large to be tried."""
        return not self.keep and is_size(role) and bool(as_size(default) or default == -1)


def fixed_sizes(plan: ConfigPlan) -> dict[str, int]:
    """Sizes that defaults fix, by role; of several of one role the one that is read."""
    found: dict[str, int] = {}
    for name in sorted(plan.fields, key=lambda n: n not in plan.read):
        role, size = plan.roles.get(name), as_size(plan.fields[name])
        if is_size(role) and size and not plan.replaces(role, size):
            found.setdefault(str(role), size)
    return found


def read_names(parameter: str, usage: Usage) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    """Under which expressions a config is read, the names read of it as attributes, and those as keys."""
    bases = tuple(dict.fromkeys((parameter, f"self.{parameter}", "self.config", "self.cfg", "config", "cfg")))
    attributes = frozenset(a for b in bases for a in usage.attributes.get(b, ()))
    keys = frozenset(k for b in bases for k in usage.keys.get(b, ()))
    methods = {"items", "keys", "get", "values", "to_dict", "copy", "update", "__dict__"}
    return bases, attributes - methods, keys


def plan_config(
    parameter: str,
    annotation: Any,
    cls: Any,
    module: ModuleType,
    usage: Usage,
    default: Any = None,
    *,
    keep: bool = True,
) -> ConfigPlan:
    """Choose what the config argument will be made from; nothing is made yet."""
    bases, attributes, keys = read_names(parameter, usage)
    read = attributes | keys
    chosen = _config_class(annotation, cls, module, attributes)
    if chosen is not None and not (keys and not attributes):
        fields = _fields(chosen)
        kind, source = "class", chosen
    else:
        table = _config_dict(module, keys) if keys else None
        if isinstance(default, dict):
            table = default
        if table is not None:
            fields, kind, source = dict(table), "dict", table
        else:
            fields, kind, source = (
                dict.fromkeys(sorted(read)),
                "keys" if keys and not attributes else "guess",
                None,
            )
    roles = {n: _role(n, bases, usage) for n in dict.fromkeys([*fields, *sorted(read)])}
    if "kv_lora_rank" in read:  # latent keys are expanded to all heads
        roles = {n: "H" if role == "G" else role for n, role in roles.items()}
    return ConfigPlan(parameter, kind, source, read, fields, roles, usage, bases, keep)


def _role(name: str, bases: tuple[str, ...], usage: Usage) -> str | None:
    used = next((usage.roles[f"{b}.{name}"] for b in bases if f"{b}.{name}" in usage.roles), None)
    named = role_of(name)
    return (
        named if named is not None and not (is_size(used) and not is_size(named) and named == "two") else used
    )


def is_described(annotation: Any, module: ModuleType) -> bool:
    """Whether an annotation names a dataclass or a named tuple: its fields say what is to be made."""
    if annotation is inspect.Parameter.empty:
        return False
    found = _annotated(annotation, module)
    return isinstance(found, type) and (dataclasses.is_dataclass(found) or hasattr(found, "_field_defaults"))


def _annotated(annotation: Any, module: ModuleType) -> Any:
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, dict(vars(module)))
        except Exception:
            return _in_package(annotation.strip("\"' "), module)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = [a for a in typing.get_args(annotation) if a is not type(None)]
        annotation = options[0] if options else None
    return annotation


def _content(path: Path) -> str:
    """The text of a neighbour; of a folder, a pipe or a file that may not be read: nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def _in_package(name: str, module: ModuleType) -> Any:
    """A class that an annotation names and that only a sibling file defines."""
    file = getattr(module, "__file__", None)
    if not file or not name.isidentifier():
        return None
    for path in sorted(Path(file).parent.glob("*.py"))[:200]:
        with_name = path != Path(file) and f"class {name}" in _content(path)
        if with_name:
            package = module.__package__ or ""
            try:
                return getattr(
                    importlib.import_module(f"{package}.{path.stem}" if package else path.stem), name
                )
            except Exception:
                return None
    return None


def _config_class(annotation: Any, cls: Any, module: ModuleType, attributes: frozenset[str]) -> Any:
    found = _annotated(annotation, module) if annotation is not inspect.Parameter.empty else None
    if (
        isinstance(found, type)
        and found.__module__ not in ("builtins", "typing")
        and found not in (dict, object)
    ):
        return found
    name = getattr(cls, "__name__", "")
    options = {
        n: v
        for n, v in vars(module).items()
        if isinstance(v, type)
        and _CONFIG_CLASS.search(n)
        and n not in ("PretrainedConfig", "PreTrainedConfig")
    }
    if not options:
        return None

    def merit(item: tuple[str, type]) -> tuple[float, int, int]:
        fields = set(_fields(item[1])) | {n for n in dir(item[1]) if not n.startswith("_")}
        covered = len(attributes & fields) / max(len(attributes), 1)
        return (
            covered,
            _shared_start(item[0].lower(), name.lower()),
            int(item[1].__module__ == module.__name__),
        )

    best = max(options.items(), key=merit)
    return best[1] if merit(best)[0] >= 0.5 or not attributes else None


def _shared_start(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _fields(cls: Any) -> dict[str, Any]:
    """Names and defaults (`inspect.Parameter.empty` where there is none) of a config class."""
    empty = inspect.Parameter.empty
    if dataclasses.is_dataclass(cls):
        made: dict[str, Any] = {}
        for f in dataclasses.fields(cls):
            if f.init:
                has_factory = f.default_factory is not dataclasses.MISSING
                if f.default is None and f.type in (int, "int"):
                    made[f.name] = empty
                    continue
                made[f.name] = (
                    None if has_factory else empty if f.default is dataclasses.MISSING else f.default
                )
        return made
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    named = {
        p.name: p.default
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"
    }
    if named:
        return named
    return {
        n: v
        for n, v in vars(cls).items()
        if not n.startswith("_") and not callable(v) and not isinstance(v, property)
    }


def _config_dict(module: ModuleType, keys: frozenset[str]) -> dict[str, Any] | None:
    tables = [
        v
        for v in vars(module).values()
        if isinstance(v, dict) and keys & {k for k in v if isinstance(k, str)}
    ]
    return max(tables, key=lambda t: len(keys & set(t)), default=None)


def wanted_roles(plan: ConfigPlan) -> set[str]:
    """Size roles of the fields that will be set: those read, those with a size as default, those without."""
    wanted = set()
    for name, role in plan.roles.items():
        default = plan.fields.get(name, inspect.Parameter.empty)
        if is_size(role) and (
            default is inspect.Parameter.empty
            or plan.replaces(role, default)
            or plan.kind in ("guess", "keys")
        ):
            wanted.add(str(role))
    return wanted


def _value(plan: ConfigPlan, name: str, sizes: Sizes) -> Any:
    role = plan.roles.get(name, role_of(name))
    if is_size(role):
        return sizes.value(role)
    for base in plan.bases:
        key = f"{base}.{name}"
        if key in plan.usage.called:
            return _maker(name)
        if key in plan.usage.literals and role in (None, "none", "act"):
            return plan.usage.literals[key]
    if role is None:
        for base in plan.bases:
            nested = plan.usage.attributes.get(f"{base}.{name}")
            if nested:
                inner = dataclasses.replace(plan, bases=(f"{base}.{name}",), roles={}, fields={})
                return GuessedConfig(partial(_answer, inner, sizes), {})
        return None
    return plain_value(role)


def _maker(name: str) -> Callable[..., Any]:
    """What a config's `norm_class(…)` or `mlp_class(…)` makes; other methods give None."""
    if "norm" in name.lower():
        return lambda size, *args, **kwargs: nn.LayerNorm(size)
    if "mlp" in name.lower():
        return lambda *args, **kwargs: nn.Identity()
    return lambda *args, **kwargs: None


def _answer(plan: ConfigPlan, sizes: Sizes, name: str) -> Any:
    return _value(plan, name, sizes)


def make_config(plan: ConfigPlan, sizes: Sizes, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The config object with sizes that fit, and the fields that were guessed.

    `given` are fields that the user set (`--arg cfg.n_head=4`).
    """
    if plan.kind == "class":
        return _from_class(plan, sizes, given)
    if plan.kind in ("dict", "keys"):
        table: dict[str, Any] = dict(plan.source or {})
        chosen = {}
        for name, role in plan.roles.items():
            if (name not in table and name in plan.read) or plan.replaces(role, table.get(name)):
                chosen[name] = _value(plan, name, sizes)
        return {**table, **chosen, **given}, {n: v for n, v in chosen.items() if n not in given}
    tested = {n for t in (plan.usage.guarded, plan.usage.optional) for b in plan.bases for n in t.get(b, ())}
    absent = tested - plan.read
    config = GuessedConfig(lambda n: _value(plan, n, sizes), given, frozenset(absent))
    return config, config._guessed


def _from_class(plan: ConfigPlan, sizes: Sizes, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    empty = inspect.Parameter.empty
    chosen: dict[str, Any] = {}
    for name, default in plan.fields.items():
        role = plan.roles.get(name)
        if default is empty or plan.replaces(role, default):
            chosen[name] = _value(plan, name, sizes)
        elif role == "image" and as_size(default) and name not in given:
            continue
    accepts = _accepts(plan.source)
    keywords = {**chosen, **{n: v for n, v in given.items() if n in plan.fields}}
    try:
        config = plan.source(**{n: v for n, v in keywords.items() if accepts(n)})
    except KeyboardInterrupt:
        raise
    except BaseException:
        required = {n: v for n, v in keywords.items() if plan.fields.get(n) is empty or n in given}
        config = plan.source(**{n: v for n, v in required.items() if accepts(n)})
        for name, value in keywords.items():
            set_field(config, name, value)
    for name, value in keywords.items():
        if not accepts(name):
            set_field(config, name, value)
    for name, value in given.items():
        if name not in plan.fields:
            set_field(config, name, value)
    guessed = {n: v for n, v in chosen.items() if n not in given}
    optional = {
        n for b in plan.bases for n in (*plan.usage.guarded.get(b, ()), *plan.usage.optional.get(b, ()))
    }
    for name in sorted(plan.read - optional):
        if not _has(config, name):
            guessed[name] = _value(plan, name, sizes)
            set_field(config, name, guessed[name])
    return config, guessed


def _has(config: Any, name: str) -> bool:
    try:
        getattr(config, name)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False
    return True


def set_field(config: Any, name: str, value: Any) -> None:
    """Set a field of a config, also of a frozen one, or a key of a dict."""
    if isinstance(config, MutableMapping):
        config[name] = value
        return
    try:
        setattr(config, name, value)
    except KeyboardInterrupt:
        raise
    except BaseException:
        try:
            object.__setattr__(config, name, value)
        except Exception:
            return


def _accepts(cls: Any) -> Callable[[str], bool]:
    if dataclasses.is_dataclass(cls):
        names = {f.name for f in dataclasses.fields(cls) if f.init}
        return lambda n: n in names
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return lambda n: False
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return lambda n: True
    known = {p.name for p in parameters}
    return lambda n: n in known
