"""What is given, what is chosen and how a call with it is tried: the state of a search for inputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnscope.errors import UsageError
from attnscope.loader import candidates as cand
from attnscope.loader import roles
from attnscope.loader.arguments import Built
from attnscope.loader.candidates import Candidate, Frame
from attnscope.loader.expressions import nearest, parse_binding, printable, value_of
from attnscope.loader.importing import run_user_code
from attnscope.loader.names import role_of
from attnscope.loader.probe import (
    Outcome,
    Prober,
)
from attnscope.loader.sizes import as_size

LAYOUTS = ("btc", "tbc", "nc")
SAME = Candidate("the same", lambda f: None)
MASKS = ("mask", "padding")
SEQUENCES = ("key", "value", "query", "main", "memory", "condition")
ROPE = ("cos", "sin", "complex", "angles", "pair")


class Search:
    """The arguments of one call, chosen one parameter after another by trying them on copies."""

    def __init__(
        self,
        built: Built,
        module: nn.Module,
        batch: int,
        length: int,
        text_tokens: Sequence[int] | None,
        layout: str | None,
        causal: bool,
        thorough: bool = True,
        free_length: bool = True,
    ) -> None:
        self.built = built
        self.module = module
        self.layout = layout
        self.causal = causal
        self.parameters = roles.forward_parameters(module)
        self.by_name = {p.name: p for p in self.parameters}
        self.given: dict[str, Any] = {}
        self.choice: dict[str, Candidate] = {}
        self.widths: dict[str, int] = {}
        self.vocabularies: dict[str, int] = {}
        self.thorough = thorough
        self.free_length = free_length
        self.crossed = False  # an attention between two sequences of two lengths was seen
        self.refused: tuple[int, BaseException | None] | None = None  # a length that does not run, and why
        self.prober = Prober(module, built.target.environment, thorough)
        self.tree = roles.forward_tree(built.target.tree, module)
        self.source = roles.class_source(built.target.tree, module)
        tokens = tuple(int(t) for t in text_tokens) if text_tokens else None
        sizes = built.sizes
        self.frame = Frame(
            B=batch,
            T=len(tokens) if tokens else length,
            S=sizes.S,
            C=sizes.C,
            H=sizes.H,
            G=sizes.G,
            D=sizes.D,
            vocab=sizes.vocab,
            seed=built.seed,
            dtype=_float_dtype(module, built.dtype),
            tokens=tokens,
            head_dims=tuple(_head_dims(module)),
            image=_image_size(built),
            reserved=roles.reserved_ids(module, built.arguments),
        )
        self.main = self._main_parameter()

    def restart(self, frame: Frame) -> None:
        """Nothing is chosen yet, for calls of these sizes."""
        self.frame, self.choice, self.widths, self.vocabularies = frame, {}, {}, {}
        self.main = self._main_parameter()
        self.prober = Prober(self.module, self.built.target.environment, self.thorough)

    def take(self, inputs: Sequence[str]) -> None:
        """Evaluate `--input`; B and T come from the main input where it is given."""
        names = {"torch": torch, "nn": nn, "F": F, "B": self.frame.B, "T": self.frame.T}
        free = [p.name for p in self.parameters]
        for text in inputs:
            binding = parse_binding(text)
            if binding.path:
                raise UsageError(f"--input `{printable(text)}`: forward's arguments have no dots")
            name = binding.name
            if name is None:
                name = next((n for n in free if n not in self.given), None)
                if name is None:
                    raise UsageError(f"--input `{printable(text)}` is one more than forward takes")
            elif name not in self.by_name and not self._takes_any():
                raise UsageError(
                    f"`forward` has no argument `{printable(name)}`", nearest(name, self.by_name)
                )
            self.given[name] = run_user_code(
                self.built.target.environment,
                partial(value_of, binding.expression, names, f"--input {printable(name)}"),
            )
        self.given = {n: self.cast(v) for n, v in self.given.items()}
        main = self.given.get(self.main)
        if isinstance(main, Tensor) and main.dim() >= 1:
            self._sizes_from(main)

    def _sizes_from(self, main: Tensor) -> None:
        layout = self.given_layout(main)
        if layout == "nc" or main.dim() == 1:
            batch, length = 1, main.shape[0]
        elif layout == "tbc":
            length, batch = main.shape[0], main.shape[1]
        else:
            batch, length = main.shape[0], main.shape[1]
        width = main.shape[-1] if main.is_floating_point() else self.frame.C
        self.frame = replace(self.frame, B=batch, T=length, C=width, tokens=None)
        if self.frame.S in (batch, length):
            self.frame = replace(self.frame, S=next(n for n in (5, 4, 9, 11, 3) if n not in (batch, length)))

    def given_layout(self, main: Tensor) -> str:
        """The layout of a main input that the user gave."""
        if self.layout is not None:
            return self.layout
        if not main.is_floating_point():
            return "ids"
        return {1: "nc", 2: "nc", 3: "btc"}.get(main.dim(), "heads")

    def _takes_any(self) -> bool:

        try:
            parameters = inspect.signature(self.module.forward).parameters.values()
        except (TypeError, ValueError):
            return True
        return any(p.kind is p.VAR_KEYWORD for p in parameters)

    def cast(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            moved = value.to(self.built.device) if self.built.device != "cpu" else value
            wrong = moved.is_floating_point() and self.built.dtype is not None
            return moved.to(self.built.dtype) if wrong else moved
        if type(value) in (tuple, list):
            return type(value)(self.cast(v) for v in value)
        return value

    def _main_parameter(self) -> str:
        for role in ("main", "tokens", "image", "query"):
            for p in self.parameters:
                if p.role == role and (p.required or role != "main"):
                    return p.name
        return self.parameters[0].name if self.parameters else ""

    def values(self, choice: Mapping[str, Candidate]) -> dict[str, Any]:
        """The value of every argument that is given or chosen, by parameter name, on the CPU."""
        made = dict(self.given)
        for name, candidate in choice.items():
            if name in made or candidate is SAME:
                continue
            frame = replace(self.frame, C=self.widths[name]) if name in self.widths else self.frame
            if name in self.vocabularies:
                frame = replace(frame, vocab=self.vocabularies[name])
            made[name] = candidate.make(frame)
        for name, candidate in choice.items():
            if candidate is SAME and name not in made:
                made[name] = self._same(name, made.get(self.main))
        return made

    def _same(self, name: str, main: Any) -> Any:
        """Key and value are the main input itself; of their own where heads are split already."""
        chosen = self.choice.get(self.main)
        if chosen in (cand.MAIN["heads"], cand.MAIN["bthd"]) and chosen is not None:
            salt = 1 + list(self.by_name).index(name)
            return chosen.make(replace(self.frame, seed=self.frame.seed + salt))
        return main

    def call(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], list[str]]:
        """Values as positional and keyword arguments, and the names of the positional ones."""
        args: list[Any] = []
        names: list[str] = []
        kwargs: dict[str, Any] = {}
        positional = True
        for p in self.parameters:
            positional = positional and not p.keyword_only and p.name in values
            if positional:
                args.append(values[p.name])
                names.append(p.name)
            elif p.name in values:
                kwargs[p.name] = values[p.name]
        kwargs.update({n: v for n, v in values.items() if n not in self.by_name})
        return args, kwargs, names

    def attempt(self, values: Mapping[str, Any]) -> Outcome:
        args, kwargs, _ = self.call(values)
        watched = {n: v for n, v in values.items() if isinstance(v, Tensor)}
        outcome = self.prober.run(args, kwargs, watched)
        lengths = {self.frame.T, self.frame.S}
        self.crossed = self.crossed or any(
            len(lengths) == 2 and set(size) == lengths for size in outcome.maps
        )
        return outcome

    def try_choice(self, choice: Mapping[str, Candidate]) -> Outcome:
        return self.attempt(self.values(choice))

    @property
    def spent(self) -> bool:
        return self.prober.exhausted

    def keys(self) -> int:
        """The number of keys: S where a second sequence is attended to, else T."""
        for p in self.parameters:
            if p.role == "memory" and (p.name in self.given or p.name in self.choice):
                value = self.given.get(p.name)
                if isinstance(value, Tensor) and value.dim() >= 2:
                    return value.shape[1]
                if self.choice.get(p.name, SAME).axes[1:2] == ("S",):
                    return self.frame.S
            if (
                p.role == "key"
                and isinstance(self.given.get(p.name), Tensor)
                and self.given[p.name].dim() >= 2
            ):
                return int(self.given[p.name].shape[1])
        return self.frame.T

    def second_length(self) -> int | None:
        """The length of a second sequence of rows or ids, where the call has one."""
        for p in self.parameters:
            if p.name == self.main or p.role in MASKS:
                continue
            value, chosen = self.given.get(p.name), self.choice.get(p.name, SAME)
            if p.role in ("memory", "tokens") and isinstance(value, Tensor) and value.dim() >= 2:
                return int(value.shape[1])
            if "S" in chosen.axes and not chosen.convention and p.name not in self.given:
                return self.frame.S
        return None

    def time_axes(self) -> tuple[int, int] | None:
        """The token axis of the main input, and the axis at which it is looked for in the output first."""
        candidate = self.choice.get(self.main)
        if candidate is not None:
            if "T" in candidate.axes:
                axis = candidate.axes.index("T")
                return axis, axis
            return None
        value = self.given.get(self.main)
        if not isinstance(value, Tensor):
            return None
        axis = {"tbc": 0, "nc": 0, "btc": 1, "ids": 1, "heads": 2}.get(self.given_layout(value), 1)
        return (axis, axis) if value.dim() > axis else None

    def layout_name(self, main: Any) -> str:
        if self.main in self.given:
            return self.given_layout(main) if isinstance(main, Tensor) else ""
        chosen = self.choice.get(self.main)
        return next((n for n, c in cand.MAIN.items() if c is chosen), "")

    def fits_vocabulary(self, size: int) -> None:
        """Raises UsageError where the text has ids that an embedding of that size does not hold."""
        beyond = [str(i) for i in dict.fromkeys(self.frame.tokens or ()) if i >= size]
        if beyond:
            more = f" and {len(beyond) - 6} more" if len(beyond) > 6 else ""
            what, do = ("id", "does") if len(beyond) == 1 else ("ids", "do")
            raise UsageError(
                f"token {what} {', '.join(beyond[:6])}{more} of the text {do} not fit the "
                f"vocabulary of {size} of `{printable(self.built.target.name)}`",
                ("--encoding bytes" if size >= 256 else f"an --encoding of at most {size} tokens")
                + f' would, or ids of its own: --input "{printable(self.main)}=torch.tensor([[0, 1, 2]])"',
            )

    def required_others(self) -> list[str]:
        return [
            p.name for p in self.parameters if p.required and p.name != self.main and p.name not in self.given
        ]

    def hopeless(self, outcome: Outcome) -> bool:
        return outcome.endless or _cannot_be_a_guess(outcome.error, self.module)


def _cannot_be_a_guess(error: BaseException | None, module: nn.Module) -> bool:
    """An unknown name, or an attribute that a module of the user's lacks, has nothing to do with inputs."""
    if isinstance(error, AttributeError):
        kinds = {type(m).__name__ for m in module.modules()}
        return any(printable(error).startswith(f"'{kind}' object has no attribute") for kind in kinds)
    return isinstance(error, (NameError, SyntaxError, ImportError))


def _image_size(built: Built) -> tuple[int, int, int] | None:
    """Channels, height and width where the constructor takes the size of an image."""
    side, channels = None, 3
    settings = dict(built.arguments)
    for value in built.arguments.values():
        fields = getattr(value, "__dict__", {})
        settings |= fields if isinstance(fields, dict) and not isinstance(value, (nn.Module, type)) else {}
    for name, value in settings.items():
        role = role_of(name)
        if role == "image":
            side = (
                value if as_size(value) else value[0] if isinstance(value, (tuple, list)) and value else None
            )
        elif "chan" in name.lower() and as_size(value):
            channels = value
    return (channels, side, side) if side else None


def _float_dtype(module: nn.Module, wanted: torch.dtype | None) -> torch.dtype:
    if wanted is not None:
        return wanted
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.get_default_dtype())


def _head_dims(module: nn.Module) -> list[int]:
    """Head dimensions that the module's attributes name, rotary ones first."""
    found: list[tuple[int, int]] = []
    for part in list(module.modules())[:50]:
        settings = vars(part).get("config", vars(part).get("cfg"))
        inner = getattr(settings, "__dict__", {}) if not isinstance(settings, nn.Module) else {}
        for name, value in [*vars(part).items(), *(inner if isinstance(inner, dict) else {}).items()]:
            size = as_size(value)
            if size and size > 1 and role_of(name) == "D":
                rotary = "rot" in name or "rope" in name
                found.append((0 if rotary else 1, size))
    return [size for _, size in sorted(found, key=lambda f: f[0])][:6]
