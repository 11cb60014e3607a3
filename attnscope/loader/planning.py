"""What each argument of a constructor will be: given, a default, a config object, a module, or a role."""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from attnscope.errors import UsageError
from attnscope.loader import configs
from attnscope.loader.expressions import nearest, printable
from attnscope.loader.inner import Inner, makers_of, plan_module, takes_module, uses_of
from attnscope.loader.names import is_config_name, is_size, role_of
from attnscope.loader.sizes import as_size
from attnscope.loader.target import Target
from attnscope.loader.usage import Usage, constructor_signatures, read_usage

EMPTY = inspect.Parameter.empty


@dataclass
class Plan:
    """What each parameter will be: a value (given or default), a config plan, or a role to guess by."""

    values: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, str | None] = field(default_factory=dict)
    configs: dict[str, configs.ConfigPlan] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    extra: dict[str, Any] = field(default_factory=dict)
    variadic: tuple[Any, ...] = ()
    globals: dict[str, str | None] = field(default_factory=dict)
    modules: dict[str, Inner] = field(default_factory=dict)
    makers: tuple[tuple[Target, Plan], ...] = ()
    flags: set[str] = field(default_factory=set)
    given: frozenset[str] = frozenset()
    scaled: bool = False
    device: str = "cpu"
    limit: int | None = None


def signature(factory: Any) -> list[inspect.Parameter]:
    """Parameters of the constructor or function, without `self`; an inherited `*args` is looked through."""
    candidates: list[Any] = [factory]
    if isinstance(factory, type):
        candidates = [c.__dict__["__init__"] for c in factory.__mro__ if "__init__" in c.__dict__]
    found: list[inspect.Parameter] = []
    for candidate in candidates:
        try:
            found = list(inspect.signature(candidate).parameters.values())
        except (TypeError, ValueError):
            continue
        if isinstance(factory, type):
            found = found[1:]
        if candidate is nn.Module.__init__:
            return []
        if any(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found) or not found:
            return found
    return found


def make_plan(
    target: Target,
    given: Mapping[str, Any],
    fields: Mapping[str, Mapping[str, Any]],
    usage: Usage | None = None,
    depth: int = 0,
    scaled: bool = False,
) -> Plan:
    """Decide how each argument will come about; nothing is constructed yet.

    Defaults stay what they are. Only with `scaled`, where they make more than can be tried, sizes among
    them are guessed too.
    """
    if usage is None:
        usage = read_usage(target.tree, constructor_signatures(target.tree))
    plan = Plan(given=frozenset(given), scaled=scaled)
    parameters = signature(target.factory)
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    _sort_given(target, plan, given, fields, named, takes_any)
    local = _constructor_usage(target) or usage
    for name, p in named.items():
        if name in plan.values:
            _fix(plan, name, plan.values[name], local, given=True)
            continue
        uses = uses_of(target, name)
        if takes_module(name, p, uses, target.module):
            plan.modules[name] = plan_module(name, p, uses, target)
            plan.roles[name] = None
            continue
        bases = configs.read_names(name, usage)
        reads = bool(local.attributes.get(name) or local.keys.get(name)) and _is_object(name, p, local)
        described = configs.is_described(p.annotation, target.module)
        as_config = (is_config_name(name) or reads or described or name in fields) and not _is_plain(p)
        if (
            as_config
            and (p.default is EMPTY or p.default is None or name in fields)
            and (bases[1] or bases[2] or p.default is EMPTY)
        ):
            plan.configs[name] = configs.plan_config(
                name, p.annotation, target.factory, target.module, usage, p.default, keep=not scaled
            )
            plan.wanted |= configs.wanted_roles(plan.configs[name])
            for field_name, value in fields.get(name, {}).items():
                role = plan.configs[name].roles.get(field_name, role_of(field_name))
                if is_size(role) and as_size(value):
                    plan.fixed.setdefault(str(role), value)
            for size_role, size in configs.fixed_sizes(plan.configs[name]).items():
                plan.fixed.setdefault(size_role, size)
            continue
        role = _role(name, p, local)
        unnumbered = p.default is None and role == "index"
        shrunk = scaled and is_size(role) and as_size(p.default)
        if p.default is not EMPTY and not unnumbered and not shrunk:
            plan.values[name] = p.default
            _fix(plan, name, p.default, local)
            continue
        if role in (None, "none") and name in local.literals:
            plan.values[name] = local.literals[name]
            continue
        plan.roles[name] = role
        if isinstance(p.annotation, type) and issubclass(p.annotation, enum.Enum):
            plan.values[name] = next(iter(p.annotation))
            del plan.roles[name]
            continue
        if p.annotation in (bool, "bool"):
            plan.flags.add(name)
        if is_size(role):
            plan.wanted.add(str(role))
    if plan.modules and depth < 2:
        _plan_makers(target, plan, depth)
    _fix_constants(target, plan, named)
    for name in target.unset:
        if name not in given:
            role = role_of(name) or usage.roles.get(name)
            if is_size(role) or role in ("zero", "device", "dtype", "eps", "theta", "batch"):
                plan.globals[name] = role
    for name in fields:
        if name not in plan.configs and name not in named:
            raise UsageError(
                f"`{printable(target.name)}` has no argument `{printable(name)}`", nearest(name, named)
            )
    return plan


def _plan_makers(target: Target, plan: Plan, depth: int) -> None:
    """Functions that make the class, and the sizes that their defaults, or those of a part, fix."""
    makers: list[tuple[Target, Plan]] = []
    for name in makers_of(target):
        maker = replace(target, factory=vars(target.module)[name], name=name)
        made = make_plan(maker, {}, {}, depth=depth + 2, scaled=plan.scaled)
        if not made.modules:
            makers.append((maker, made))
    plan.makers = tuple(makers[:3])
    parts = [made for _, made in makers[:1]]
    if not parts:
        for inner in plan.modules.values():
            for cls in inner.candidates[:1]:
                part = replace(target, factory=cls, name=cls.__name__)
                parts.append(make_plan(part, {}, {}, depth=depth + 1, scaled=plan.scaled))
    for planned in parts:
        plan.wanted |= planned.wanted
        for role, size in planned.fixed.items():
            plan.fixed.setdefault(role, size)


def _sort_given(
    target: Target,
    plan: Plan,
    given: Mapping[str, Any],
    fields: Mapping[str, Mapping[str, Any]],
    named: Mapping[str, inspect.Parameter],
    takes_any: bool,
) -> None:
    """`--arg` by name: a parameter, a global of the file, or a keyword that `**kwargs` takes."""
    reads = {n.id for n in ast.walk(target.tree) if isinstance(n, ast.Name)}
    for name, value in given.items():
        if name in named:
            plan.values[name] = value
        elif name in target.unset or (
            name in vars(target.module) and not callable(vars(target.module)[name])
        ):
            vars(target.module)[name] = value
            role = role_of(name)
            if is_size(role) and as_size(value):
                plan.fixed.setdefault(str(role), value)
        elif takes_any:
            plan.extra[name] = value
        elif target.partial and name in reads:
            vars(target.module)[name] = value
        else:
            known = list(named) + list(target.unset)
            hint = nearest(name, known) if known else "its constructor takes none"
            raise UsageError(f"`{printable(target.name)}` has no argument `{printable(name)}`", hint)


def _fix_constants(target: Target, plan: Plan, named: Mapping[str, inspect.Parameter]) -> None:
    """Sizes of a script (`n_embd = 384`) bind those that are guessed, where the constructor reads one."""
    read = {
        node.id
        for body in _constructor_bodies(target)
        for node in ast.walk(body)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    constants = {
        name: value
        for name, value in vars(target.module).items()
        if as_size(value) and is_size(role_of(name)) and name not in named and len(name) > 1
    }
    if read & constants.keys():
        for name, value in sorted(constants.items(), key=lambda item: item[0] not in read):
            plan.fixed.setdefault(str(role_of(name)), value)


def _is_object(name: str, p: inspect.Parameter, usage: Usage) -> bool:
    """More is read of it than a tensor's or a text's own attributes."""
    read = usage.attributes.get(name, set()) | usage.keys.get(name, set())
    return bool(
        read - {"shape", "size", "device", "dtype", "lower", "split", "weight", "bias", "parameters", "to"}
    )


def _is_plain(p: inspect.Parameter) -> bool:
    return p.annotation in (int, float, bool, str, "int", "float", "bool", "str")


def _constructor_usage(target: Target) -> Usage | None:
    """What the constructor's own code shows, so that another class's `d` tells nothing of this one's."""
    bodies = _constructor_bodies(target)
    signatures = constructor_signatures(target.tree)
    return read_usage(ast.Module(body=list(bodies), type_ignores=[]), signatures) if bodies else None


def _constructor_bodies(target: Target) -> list[ast.FunctionDef]:
    """The function that is the target, or the constructor of the class that is."""
    bare = target.name.rpartition(".")[2]
    for node in ast.walk(target.tree):
        if isinstance(node, ast.FunctionDef) and node.name == bare:
            return [node]
        if isinstance(node, ast.ClassDef) and node.name == bare:
            found = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
            if found:
                return found
    return []


def _role(name: str, p: inspect.Parameter, usage: Usage) -> str | None:
    named, used = role_of(name), usage.roles.get(name)
    entries = used == "vocab" and named == "C"  # an `input_dim` that an embedding has
    if used == "two" or (is_size(used) and (not is_size(named) or used == "T" or entries or len(name) == 1)):
        return used
    if name in usage.pairs and named in ("T", "image", "patch"):
        return "pair"
    if named is not None:
        return named
    if used is not None:
        return used
    return {int: "one", "int": "one", float: "onef", "float": "onef", bool: "false", "bool": "false"}.get(
        p.annotation
    )


def _fix(plan: Plan, name: str, value: Any, usage: Usage, given: bool = False) -> None:
    role = role_of(name)
    size = as_size(value)
    if not is_size(role) and is_size(usage.roles.get(name)):
        if size == 1 and not given:
            return  # a divisor that divides nothing by default: no head count
        role = usage.roles[name]
    if is_size(role) and size:
        if role == "C" and usage.roles.get(name) != "C" and "C" in plan.fixed:
            return
        if role == "C" and size <= 4 and not given:
            return
        plan.fixed.setdefault(str(role), size)
