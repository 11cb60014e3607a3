"""Values for the arguments of a constructor, modules among them, and the module that comes out of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from attnscope.errors import UsageError
from attnscope.loader import configs
from attnscope.loader.expressions import printable
from attnscope.loader.inner import Inner
from attnscope.loader.memory import MarkedMemory, TooLargeError, fill_unset
from attnscope.loader.names import is_size, plain_value
from attnscope.loader.planning import Plan, make_plan, signature
from attnscope.loader.sizes import Sizes
from attnscope.loader.target import Target
from attnscope.sandbox.state import seed_torch

_DEEPEST = 4


def arguments_for(
    target: Target, plan: Plan, fields: Mapping[str, Mapping[str, Any]], sizes: Sizes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments by name for one choice of sizes, and what of them was guessed (by shown name)."""
    arguments = dict(plan.values)
    guessed: dict[str, Any] = {}
    value: Any
    for name, role in plan.globals.items():
        value = sizes.value(role) if is_size(role) else plain_value(role)
        vars(target.module)[name] = guessed[name] = value
    for name, config_plan in plan.configs.items():
        nested = {k: v for k, v in fields.get(name, {}).items() if "." not in k}
        try:
            arguments[name], chosen = configs.make_config(config_plan, sizes, nested)
        except (KeyboardInterrupt, UsageError):
            raise
        except BaseException:
            as_guess = configs.ConfigPlan(**{**vars(config_plan), "kind": "guess"})
            arguments[name], chosen = configs.make_config(as_guess, sizes, nested)
        for path, value in fields.get(name, {}).items():
            if "." in path:
                *parts, last = path.split(".")
                holder = arguments[name]
                for part in parts:
                    holder = getattr(holder, part)
                setattr(holder, last, value)
        guessed[name] = chosen
    modules: dict[str, Any] = {}
    if plan.modules:
        with MarkedMemory(plan.limit):
            modules = {n: _make_inner(inner, sizes, target, plan) for n, inner in plan.modules.items()}
            modules |= _as_made(target, plan, sizes)
    for name, role in plan.roles.items():
        if name in modules:
            value = modules[name]
        elif is_size(role):
            value = sizes.value(role)
        elif role == "pair":
            value = (4, 4)
        elif role == "device":
            value = plan.device
        else:
            value = plain_value(role)
        if value is None and name in plan.flags:
            value = False
        arguments[name] = guessed[name] = value
    return arguments, guessed


def _as_made(target: Target, plan: Plan, sizes: Sizes) -> dict[str, Any]:
    """Arguments with which a function of the same file constructs this class; nothing where none does."""
    for maker, maker_plan in plan.makers:
        try:
            arguments, _ = arguments_for(maker, maker_plan, {}, sizes)
            with _first_call_of(target.factory) as caught:
                maker.factory(**arguments)
        except (KeyboardInterrupt, TooLargeError):
            raise
        except BaseException:  # it may fail after the class was constructed, or want what cannot be guessed
            pass
        if caught:
            return dict(caught)
    return {}


@contextmanager
def _first_call_of(cls: type[nn.Module]) -> Iterator[dict[str, Any]]:
    """While it is active, the arguments of the first construction of `cls` are noted."""
    caught: dict[str, Any] = {}
    original = cls.__init__
    bound = inspect.signature(original)

    def noting(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls and not caught:
            values = bound.bind(self, *args, **kwargs).arguments
            caught.update(list(values.items())[1:])
        original(self, *args, **kwargs)

    cls.__init__ = noting  # type: ignore[method-assign]
    try:
        yield caught
    finally:
        cls.__init__ = original  # type: ignore[method-assign]


def _make_inner(inner: Inner, sizes: Sizes, target: Target, plan: Plan, depth: int = 0) -> Any:
    """A module for a parameter that takes one: the first class that lets itself be made, else a layer."""
    if inner.as_class:
        usual = nn.LayerNorm if "norm" in inner.name.lower() else nn.GELU
        return inner.candidates[0] if inner.candidates else usual
    for cls in inner.candidates if depth < _DEEPEST else ():
        try:
            made = [_constructed(cls, sizes, target, plan, depth) for _ in range(2 if inner.listed else 1)]
        except (KeyboardInterrupt, TooLargeError):
            raise
        except BaseException:
            continue
        return nn.ModuleList(made) if inner.listed else made[0]
    return _plain_layer(inner, sizes)


def _constructed(cls: type[nn.Module], sizes: Sizes, target: Target, outer: Plan, depth: int) -> nn.Module:
    own = replace(target, factory=cls, name=cls.__name__)
    plan = make_plan(own, {}, {}, depth=depth + 1, scaled=outer.scaled)
    modules = {name: _make_inner(inner, sizes, own, plan, depth + 1) for name, inner in plan.modules.items()}
    plan.modules, plan.makers, plan.device = {}, (), outer.device
    arguments, _ = arguments_for(own, plan, {}, sizes)
    return cls(**{**arguments, **modules})


def _plain_layer(inner: Inner, sizes: Sizes) -> nn.Module:
    """What PyTorch has for it, by the name: projections, an embedding; else what returns its argument."""
    name, heads = inner.name.lower(), sizes.H * sizes.D
    if name.endswith("proj"):
        if name.startswith(("k", "v")):
            return nn.Linear(sizes.C, sizes.G * sizes.D)
        return nn.Linear(sizes.C, heads) if name.startswith("q") else nn.Linear(heads, sizes.C)
    if "emb" in name and "pos" not in name:
        return nn.Embedding(sizes.vocab, sizes.C)
    if "attn" in name or "attention" in name:
        return nn.MultiheadAttention(sizes.C, sizes.H, batch_first=True)
    return nn.GELU() if name.startswith("act") else nn.Identity()


def make_module(target: Target, plan: Plan, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    seed_torch(seed)
    positional: list[Any] = []
    keywords = {**arguments, **plan.extra}
    for p in signature(target.factory):
        if p.kind is p.POSITIONAL_ONLY:
            positional.append(keywords.pop(p.name))
    with MarkedMemory(plan.limit):
        module = target.factory(*positional, **keywords)
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"`{printable(target.name)}` returns a {type(module).__name__}, not an nn.Module",
            "name a class, or a function that returns a module",
        )
    fill_unset(module, seed)
    return module
