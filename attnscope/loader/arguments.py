"""A target becomes a module: constructor arguments from `--arg`, from defaults, and from usual names."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from attnscope.errors import UsageError
from attnscope.loader import configs
from attnscope.loader.expressions import evaluate, nearest, parse_binding, printable, read_file
from attnscope.loader.importing import run_user_code
from attnscope.loader.making import arguments_for, make_module
from attnscope.loader.memory import TooLargeError
from attnscope.loader.names import is_size, role_of
from attnscope.loader.planning import Plan, make_plan, signature
from attnscope.loader.probe import last_lines
from attnscope.loader.sizes import BATCH, LENGTH, VARIANTS, Sizes, solve
from attnscope.loader.stubs import missing_in, to_install
from attnscope.loader.target import Target
from attnscope.loader.usage import Usage, constructor_signatures, read_usage
from attnscope.sandbox.copying import deep_copy
from attnscope.sandbox.limits import TookTooLongError, limited

_MOST_NUMBERS = 5_000_000
_SECONDS = 20.0
EMPTY = inspect.Parameter.empty
_SHOWN_ROLES = {"C", "H", "G", "D", "T", "vocab", "layers", "ffn"}


@dataclass(frozen=True, slots=True)
class Guess:
    """A value that was made for an argument of a constructor or a field of its config, and by which role."""

    value: Any
    role: str | None


@dataclass
class Built:
    """A constructed module, or the exception that constructing it raised.

    `module` is what is looked at: `root`, or the submodule of it that `only` names. `error` is the user's
    exception, untouched, and `phase` where it came out: `constructor`, `state_dict` or `cast`.
    `guesses` is one line for the user, empty when nothing was guessed; `guessed` are all of them by name,
    those of a config by `config.field`. `config` are the constructor's
    arguments in a form that can be printed.
    """

    target: Target
    module: nn.Module | None
    root: nn.Module | None
    sizes: Sizes
    arguments: Mapping[str, Any]
    guesses: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    only: str | None = None
    error: BaseException | None = None
    phase: str = ""
    seed: int = 123
    dtype: torch.dtype | None = None
    device: str = "cpu"
    usage: Usage = field(default_factory=Usage)
    given: frozenset[str] = frozenset()
    guessed: Mapping[str, Guess] = field(default_factory=dict)
    variant: int = 0


def construct(
    target: Target,
    args: Sequence[str] = (),
    *,
    only: str | None = None,
    dtype: torch.dtype | None = None,
    device: str = "cpu",
    seed: int = 123,
    state_dict: str | Path | None = None,
    batch: int = BATCH,
    length: int = LENGTH,
    vocab: int | None = None,
    variant: int = 0,
    instead: Mapping[str, Any] | None = None,
    fixed: Mapping[str, int] | None = None,
) -> Built:
    """Construct the target.

    Args:
        target: from `load_target`.
        args: `--arg` texts, `NAME=EXPR` or `CONFIG.FIELD=EXPR`.
        only: path of the submodule to look at.
        dtype: to which the module is cast, if given.
        device: to which the module is moved.
        seed: of the weights.
        state_dict: a file to load (weights only).
        batch: B, for sizes that must differ from it.
        length: T, for a context that must hold it.
        vocab: a vocabulary that is guessed has at least so many entries.
        variant: which choice of sizes is guessed; with 0 others follow where the constructor raises.
        instead: by name, values in place of those that are guessed.
        fixed: sizes by role that those which are guessed must fit, as of inputs that are given.

    Raises:
        UsageError: an argument, a path or a file is wrong. What the user's constructor raises is in `error`.
    """
    given, fields = _parse(args, target)
    if isinstance(target.factory, nn.Module):
        if given or fields:
            raise UsageError(
                f"`{printable(target.name)}` is a module already", "`--arg` is for classes and functions"
            )
        module = deep_copy(target.factory)
        built = Built(target, module, module, solve({}, batch=batch, length=length), {}, seed=seed)
        return _finish(built, only, dtype, device, state_dict)
    usage = read_usage(target.tree, constructor_signatures(target.tree))
    recipe = _Recipe(
        target,
        given,
        fields,
        usage,
        batch,
        length,
        vocab,
        seed,
        dtype,
        device,
        variant,
        instead or {},
        fixed or {},
    )
    built = _construct(recipe, scaled=False)
    if built.error is not None and (not given or isinstance(built.error, TooLargeError)):
        smaller = _construct(recipe, scaled=True)
        if smaller.error is None or isinstance(built.error, TooLargeError):
            built = smaller
    return built if built.module is None else _finish(built, only, dtype, device, state_dict)


@dataclass(frozen=True)
class _Recipe:
    """What is said of a target, from which it is constructed."""

    target: Target
    given: Mapping[str, Any]
    fields: Mapping[str, Mapping[str, Any]]
    usage: Usage
    batch: int
    length: int
    vocab: int | None
    seed: int
    dtype: torch.dtype | None
    device: str
    variant: int
    instead: Mapping[str, Any]
    fixed: Mapping[str, int]


def _construct(recipe: _Recipe, scaled: bool) -> Built:
    """The module with one choice of sizes after another; with `scaled` also in place of defaults."""
    target, given, fields = recipe.target, recipe.given, recipe.fields
    make = partial(make_plan, target, given, fields, recipe.usage, scaled=scaled)
    plan = run_user_code(target.environment, make)
    plan.fixed = {**recipe.fixed, **plan.fixed}
    devices = [value for name, value in recipe.instead.items() if plan.roles.get(name) == "device"]
    plan.device = devices[0] if devices else "cpu"
    guessing = bool(plan.roles.keys() | plan.configs.keys() | plan.globals.keys())
    # Whoever gives arguments knows what they cost; defaults and sizes of ours must come to an end.
    plan.limit = None if scaled or (given and not guessing) else _MOST_NUMBERS
    first: BaseException | None = None
    tries = len(VARIANTS) if guessing else 1
    failed: Built | None = None
    one = recipe.variant or recipe.instead
    for variant in [recipe.variant] if one else range(tries + 1):
        if (
            variant == tries
            and not one
            and not (_turn_flag(plan, first) or _fill_optional(target, plan, first))
        ):
            break
        sizes = solve(
            plan.fixed,
            plan.wanted,
            batch=recipe.batch,
            length=recipe.length,
            vocab=recipe.vocab,
            variant=variant,
        )
        if 0 < variant < tries and failed is not None and sizes == failed.sizes:
            continue
        built = _attempt(recipe, plan, sizes, bounded=guessing or not given)
        built.variant = variant
        if built.error is None:
            return built
        if isinstance(built.error, TooLargeError):
            return built
        if first is None:
            first, failed = built.error, built
    assert failed is not None
    return failed


def _attempt(recipe: _Recipe, plan: Plan, sizes: Sizes, bounded: bool) -> Built:
    target, environment = recipe.target, recipe.target.environment
    made = partial(arguments_for, target, plan, recipe.fields, sizes)
    built = Built(
        target,
        None,
        None,
        sizes,
        {},
        seed=recipe.seed,
        dtype=recipe.dtype,
        device=recipe.device,
        usage=recipe.usage,
        given=frozenset(recipe.given),
    )
    try:
        arguments, guessed = run_user_code(environment, made)
        _replace(target, arguments, guessed, recipe.instead)
        built.arguments = arguments
        try:
            with limited(_SECONDS) if bounded else contextlib.nullcontext():
                make = partial(make_module, target, plan, arguments, recipe.seed)
                built.module = built.root = run_user_code(environment, make)
        finally:
            _note_guesses(built, guessed, plan)  # a config remembers what was read of it
    except (KeyboardInterrupt, UsageError):
        raise
    except TookTooLongError as error:
        raise UsageError(
            f"constructing `{printable(target.name)}` was stopped: {printable(error)}",
            "smaller sizes may end: --arg NAME=EXPRESSION",
        ) from error
    except BaseException as error:
        missing = missing_in(error)
        if missing is not None:
            raise to_install(missing, target.file) from error
        built.error, built.phase = error, "constructor"
    return built


def _turn_flag(plan: Plan, error: BaseException | None) -> bool:
    """Where an assertion of the constructor speaks of a flag, the flag is turned: `self_attention=True`."""
    if not isinstance(error, AssertionError):
        return False
    line = "".join(last_lines(error))
    for name, value in list(plan.values.items()):
        if isinstance(value, bool) and name not in plan.given and re.search(rf"\b{re.escape(name)}\b", line):
            del plan.values[name]
            plan.roles[name] = "false" if value else "true"
            return True
    return False


def _fill_optional(target: Target, plan: Plan, error: BaseException | None) -> bool:
    """Where nothing else worked: what the error names, else every size, whose default is None is guessed."""
    empty = [p for p in signature(target.factory) if p.default is None and plan.values.get(p.name, 0) is None]
    named = [p for p in empty if re.search(rf"\b{re.escape(p.name)}\b", printable(error))]
    found = False
    for p in named or empty:
        role = role_of(p.name)
        if p.name.endswith(("norm_layer", "norm_cls")):
            plan.values[p.name] = nn.LayerNorm
            found = True
        elif role == "act" and "not callable" in printable(error):
            plan.values[p.name] = nn.GELU
            found = True
        elif is_size(role) and (role != "G" or named):
            del plan.values[p.name]
            plan.roles[p.name] = role
            found = True
    return found


def _parse(args: Sequence[str], target: Target) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Whole arguments by name, and single fields by argument: `cfg.n_head=4`."""
    given: dict[str, Any] = {}
    fields: dict[str, dict[str, Any]] = {}
    names = {**vars(target.module), "torch": torch, "nn": nn, "F": F}
    for text in args:
        binding = parse_binding(text)
        if binding.name is None:
            raise UsageError(f"--arg `{printable(text)}` has no name", "write --arg NAME=EXPRESSION")
        value = run_user_code(
            target.environment,
            partial(evaluate, binding.expression, names, f"--arg {printable(binding.dotted)}"),
        )
        if binding.path:
            fields.setdefault(binding.name, {})[".".join(binding.path)] = value
        else:
            given[binding.name] = value
    return given, fields


def _replace(
    target: Target, arguments: dict[str, Any], guessed: dict[str, Any], instead: Mapping[str, Any]
) -> None:
    """Put other values in the place of guessed ones, by their names."""
    for dotted, value in instead.items():
        name, _, inner = dotted.partition(".")
        if inner:
            configs.set_field(arguments[name], inner, value)
            guessed[name][inner] = value
        elif name in arguments:
            arguments[name] = guessed[name] = value
        else:
            vars(target.module)[name] = guessed[name] = value


def _note_guesses(built: Built, guessed: Mapping[str, Any], plan: Plan) -> None:
    built.guesses = _say(guessed, plan)
    built.config = _config_of(built.arguments)
    found: dict[str, Guess] = {}
    for name, value in guessed.items():
        if name in plan.configs:
            inner = plan.configs[name].roles
            found.update({f"{name}.{k}": Guess(v, inner.get(k, role_of(k))) for k, v in value.items()})
        else:
            found[name] = Guess(value, plan.roles.get(name, plan.globals.get(name)))
    built.guessed = found


def _finish(
    built: Built, only: str | None, dtype: torch.dtype | None, device: str, state_dict: str | Path | None
) -> Built:
    """State dict, dtype and device, then the submodule that is looked at."""
    module = built.root = built.module
    assert module is not None
    if state_dict is not None:
        state = _read_state(Path(state_dict))
        try:
            run_user_code(built.target.environment, lambda: module.load_state_dict(state))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            built.error, built.phase = error, "state_dict"
    if dtype is not None or device != "cpu":
        try:
            run_user_code(built.target.environment, lambda: module.to(device=device, dtype=dtype))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if built.error is None:
                built.error, built.phase = error, "cast"
    if only is not None:
        names = dict(module.named_modules())
        if only not in names:
            paths = [n for n in names if n]
            raise UsageError(
                f"`{printable(built.target.name)}` has no submodule `{printable(only)}`", nearest(only, paths)
            )
        built.only, built.module = only, names[only]
    return built


def _read_state(path: Path) -> Mapping[str, Any]:
    if path.suffix.lower() in (".npy", ".json"):
        raise UsageError(f"--state-dict `{printable(path)}` is no file that torch.save wrote")
    loaded = read_file(path, "--state-dict")
    for key in ("state_dict", "model_state_dict", "model", "module"):
        inner = loaded.get(key) if isinstance(loaded, Mapping) else None
        if isinstance(inner, Mapping) and all(isinstance(v, torch.Tensor) for v in inner.values()):
            return inner
    if not isinstance(loaded, Mapping):
        raise UsageError(
            f"--state-dict `{printable(path)}` holds a {type(loaded).__name__}, not a state dict"
        )
    return loaded


def _say(guessed: Mapping[str, Any], plan: Plan) -> str:
    """`d=24 H=3 T=16 (constructor)`: the sizes that were guessed, under the user's own names."""
    shown: list[str] = []
    for name, value in guessed.items():
        if isinstance(value, Mapping) and name in plan.configs:
            roles = plan.configs[name].roles
            shown += [
                f"{name}.{k}={_short(v)}"
                for k, v in value.items()
                if roles.get(k, role_of(k)) in _SHOWN_ROLES
            ]
        else:
            shown.append(f"{name}={_short(value)}")
    why = f"; its own sizes make more than {_MOST_NUMBERS:,} numbers" if plan.scaled else ""
    return printable(" ".join(shown), 400) + f" (constructor{why})" if shown else ""


def _short(value: Any) -> str:
    return type(value).__name__ if isinstance(value, nn.Module) else printable(repr(value), 40)


def _config_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in a form that JSON can hold: plain values as they are, config objects as their fields."""
    plain = (int, float, str, bool, type(None))
    out: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, plain):
            out[name] = value
        elif isinstance(value, configs.GuessedConfig):
            out[name] = {k: v for k, v in value.items() if isinstance(v, plain)}
        elif isinstance(value, Mapping):
            out[name] = {str(k): v for k, v in value.items() if isinstance(v, plain)}
        elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, (nn.Module, type)):
            out[name] = {
                k: v for k, v in vars(value).items() if isinstance(v, plain) and not k.startswith("_")
            }
        else:
            out[name] = printable(type(value).__name__)
    return out
