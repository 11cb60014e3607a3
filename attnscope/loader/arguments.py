"""A target becomes a module: constructor arguments from `--arg`, from defaults, and from usual names."""

from __future__ import annotations

import ast
import contextlib
import copy
import enum
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
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from attnscope.errors import UsageError
from attnscope.loader import configs
from attnscope.loader.expressions import evaluate, nearest, parse_binding, printable, read_file
from attnscope.loader.importing import run_user_code
from attnscope.loader.names import is_config_name, is_size, plain_value, role_of
from attnscope.loader.probe import last_lines
from attnscope.loader.sizes import BATCH, LENGTH, VARIANTS, Sizes, as_size, solve
from attnscope.loader.stubs import missing_in, to_install
from attnscope.loader.target import Target
from attnscope.loader.usage import Usage, constructor_signatures, read_usage
from attnscope.loader.watchdog import TookTooLongError, limited
from attnscope.recorder.preserve import seed_torch

_HUGE = 5_000_000
_SECONDS = 20.0
_EMPTY = inspect.Parameter.empty
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


@dataclass
class _Plan:
    """What each parameter will be: a value (given or default), a config plan, or a role to guess by."""

    values: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, str | None] = field(default_factory=dict)
    configs: dict[str, configs.ConfigPlan] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    extra: dict[str, Any] = field(default_factory=dict)
    variadic: tuple[Any, ...] = ()
    globals: dict[str, str | None] = field(default_factory=dict)
    modules: dict[str, Any] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    given: frozenset[str] = frozenset()


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
    environment = target.environment
    given, fields = _parse(args, target)
    if isinstance(target.factory, nn.Module):
        if given or fields:
            raise UsageError(
                f"`{printable(target.name)}` is a module already", "`--arg` is for classes and functions"
            )
        module = copy.deepcopy(target.factory)
        built = Built(target, module, module, solve({}, batch=batch, length=length), {}, seed=seed)
        return _finish(built, only, dtype, device, state_dict)
    usage = read_usage(target.tree, constructor_signatures(target.tree))
    plan = run_user_code(environment, lambda: _plan(target, given, fields, usage))
    plan.fixed = {**(fixed or {}), **plan.fixed}
    first: BaseException | None = None
    guessing = bool(plan.roles.keys() | plan.configs.keys() | plan.globals.keys())
    tries = len(VARIANTS) if guessing else 1
    failed: Built | None = None
    variants = [variant] if variant or instead else range(tries + 1)
    for variant in variants:
        if variant == tries and not (_turn_flag(plan, first) or _fill_optional(target, plan, first)):
            break
        sizes = solve(plan.fixed, plan.wanted, batch=batch, length=length, vocab=vocab, variant=variant)
        if 0 < variant < tries and failed is not None and sizes == failed.sizes:
            continue
        arguments, guessed = run_user_code(environment, partial(_arguments, target, plan, fields, sizes))
        _replace(target, arguments, guessed, instead or {})
        built = Built(
            target,
            None,
            None,
            sizes,
            arguments,
            seed=seed,
            dtype=dtype,
            device=device,
            usage=usage,
            given=frozenset(given),
            variant=variant,
        )
        try:
            # Whoever gives arguments knows what they cost; defaults and sizes of ours must come to an end.
            with contextlib.nullcontext() if given and not guessing else limited(_SECONDS):
                built.module = run_user_code(environment, partial(_call, target, plan, arguments, seed))
            _note_guesses(built, guessed, plan)
            return _finish(built, only, dtype, device, state_dict)
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
            _note_guesses(built, guessed, plan)
            if first is None:
                first, failed = error, built
    assert failed is not None
    return failed


def _turn_flag(plan: _Plan, error: BaseException | None) -> bool:
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


def _fill_optional(target: Target, plan: _Plan, error: BaseException | None) -> bool:
    """Where nothing else worked: what the error names, else every size, whose default is None is guessed."""
    empty = [
        p for p in _signature(target.factory) if p.default is None and plan.values.get(p.name, 0) is None
    ]
    named = [p for p in empty if re.search(rf"\b{re.escape(p.name)}\b", printable(error))]
    found = False
    for p in named or empty:
        role = role_of(p.name)
        if p.name.endswith(("norm_layer", "norm_cls")):
            plan.values[p.name] = nn.LayerNorm
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


def _signature(factory: Any) -> list[inspect.Parameter]:
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


def _plan(
    target: Target, given: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]], usage: Usage
) -> _Plan:
    plan = _Plan(given=frozenset(given))
    parameters = _signature(target.factory)
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    _sort_given(target, plan, given, fields, named, takes_any)
    local = _constructor_usage(target) or usage
    huge = _is_huge(named)
    for name, p in named.items():
        if name in plan.values:
            _fix(plan, name, plan.values[name], local, given=True)
            continue
        bases = configs.read_names(name, usage)
        reads = bool(local.attributes.get(name) or local.keys.get(name)) and _is_object(name, p, local)
        as_config = (is_config_name(name) or reads or name in fields) and not _is_plain(p)
        if (
            as_config
            and (p.default is _EMPTY or p.default is None or name in fields)
            and (bases[1] or bases[2] or p.default is _EMPTY)
        ):
            plan.configs[name] = configs.plan_config(
                name, p.annotation, target.factory, target.module, usage, p.default
            )
            plan.wanted |= configs.wanted_roles(plan.configs[name])
            for field_name, value in fields.get(name, {}).items():
                role = plan.configs[name].roles.get(field_name, role_of(field_name))
                if is_size(role) and as_size(value):
                    plan.fixed.setdefault(str(role), value)
            continue
        role = _role(name, p, local)
        unnumbered = p.default is None and role == "index"
        if p.default is not _EMPTY and not unnumbered and not (huge and is_size(role) and as_size(p.default)):
            plan.values[name] = p.default
            _fix(plan, name, p.default, local)
            continue
        made = _inner_module(name, p, target)
        if made is not None:
            plan.modules[name] = made
        plan.roles[name] = role
        if isinstance(p.annotation, type) and issubclass(p.annotation, enum.Enum):
            plan.values[name] = next(iter(p.annotation))
            del plan.roles[name]
            continue
        if p.annotation in (bool, "bool"):
            plan.flags.add(name)
        if is_size(role):
            plan.wanted.add(str(role))
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


def _sort_given(
    target: Target,
    plan: _Plan,
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


def _fix_constants(target: Target, plan: _Plan, named: Mapping[str, inspect.Parameter]) -> None:
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
    if is_size(used) and (not is_size(named) or used == "T"):
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


def _fix(plan: _Plan, name: str, value: Any, usage: Usage, given: bool = False) -> None:
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


def _is_huge(named: Mapping[str, inspect.Parameter]) -> bool:
    """The defaults would make a module whose construction alone takes seconds."""
    sizes = {role_of(n): p.default for n, p in named.items() if as_size(p.default)}
    width, layers = sizes.get("C") or 64, sizes.get("layers") or 1
    return width * width * 12 * layers + width * (sizes.get("vocab") or 0) > _HUGE


_MODULE_PARAMETER = re.compile(
    r"attn|attention|feed_?forward|proj$|^ffn?$|mlp|^fn$|^net$|module|sublayer|encoder|decoder|embed$|generator"
)


def _inner_module(name: str, p: inspect.Parameter, target: Target) -> Any:
    """A class of the same file for a parameter that takes a module (`self_attn`, `feed_forward`)."""
    if _is_plain(p) or p.default is not _EMPTY or not _MODULE_PARAMETER.search(name.lower()):
        return None
    if name.endswith("proj"):
        return name
    key = "attention" if re.search("attn|attention", name.lower()) else name.lower().replace("_", "")
    classes = [
        (n, v)
        for n, v in vars(target.module).items()
        if isinstance(v, type)
        and issubclass(v, nn.Module)
        and v is not target.factory
        and v.__module__ == target.module.__name__
    ]
    for n, v in classes:
        if key in n.lower() or (key in ("ffn", "ff", "mlp") and re.search("feedforward|mlp|ffn", n.lower())):
            return v
    return (
        nn.Identity
        if p.annotation in (nn.Module, "nn.Module") or name.lower() in ("fn", "module", "sublayer")
        else None
    )


def _arguments(
    target: Target, plan: _Plan, fields: Mapping[str, Mapping[str, Any]], sizes: Sizes
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
    for name, role in plan.roles.items():
        if name in plan.modules:
            value = _make_inner(plan.modules[name], sizes, target)
        elif is_size(role):
            value = sizes.value(role)
        elif role == "pair":
            value = (4, 4)
        else:
            value = plain_value(role)
        if value is None and name in plan.flags:
            value = False
        arguments[name] = guessed[name] = value
    return arguments, guessed


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


def _note_guesses(built: Built, guessed: Mapping[str, Any], plan: _Plan) -> None:
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


def _make_inner(cls: type[nn.Module] | str, sizes: Sizes, target: Target) -> nn.Module:
    if isinstance(cls, str):
        inner = sizes.H * sizes.D
        if cls.startswith(("k", "v")):
            return nn.Linear(sizes.C, sizes.G * sizes.D)
        return nn.Linear(sizes.C, inner) if cls.startswith("q") else nn.Linear(inner, sizes.C)
    if cls is nn.Identity:
        return nn.Identity()
    values = {}
    for p in _signature(cls):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.default is not _EMPTY:
            continue
        role = role_of(p.name)
        values[p.name] = sizes.value(role) if is_size(role) else plain_value(role)
    try:
        return cls(**values)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return nn.Identity()


def _call(target: Target, plan: _Plan, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    seed_torch(seed)
    positional: list[Any] = []
    keywords = {**arguments, **plan.extra}
    for p in _signature(target.factory):
        if p.kind is p.POSITIONAL_ONLY:
            positional.append(keywords.pop(p.name))
    with _MarkedMemory():
        module = target.factory(*positional, **keywords)
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"`{printable(target.name)}` returns a {type(module).__name__}, not an nn.Module",
            "name a class, or a function that returns a module",
        )
    _fill_unset(module, seed)
    return module


_UNSET = -1.2345678e-30


class _MarkedMemory(TorchFunctionMode):
    """Marks the memory that `torch.empty` leaves to chance, so that what is never set can be told.

    Where CUDA is missing, a constructor's `.cuda()` and `device="cuda"` stay on the CPU.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if not torch.cuda.is_available():
            if func is torch.Tensor.cuda:
                return args[0]
            if "cuda" in str(kwargs.get("device", "")):
                kwargs["device"] = "cpu"
            if func is torch.Tensor.to and len(args) > 1 and "cuda" in str(args[1]):
                args = (args[0], "cpu", *args[2:])
        made = func(*args, **kwargs)
        if func in (torch.empty, torch.empty_like, torch.Tensor.new_empty) and made.is_floating_point():
            made.detach().fill_(_UNSET)
        return made


def _fill_unset(module: nn.Module, seed: int) -> None:
    """What the constructor leaves unset gets small normal numbers in place of chance."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in [*module.parameters(), *module.buffers()]:
        if is_lazy(tensor):
            continue
        if tensor.is_floating_point() and tensor.numel() and tensor.device.type == "cpu":
            mark = torch.tensor(_UNSET, dtype=tensor.dtype)
            if bool(tensor.flatten()[0] == mark) and bool((tensor == mark).all()):
                with torch.no_grad():
                    tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)


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


def _say(guessed: Mapping[str, Any], plan: _Plan) -> str:
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
    return printable(" ".join(shown), 400) + " (constructor)" if shown else ""


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
