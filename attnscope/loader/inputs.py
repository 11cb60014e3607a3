"""What `forward` is called with: from `--input`, and for the rest from what the module proves to use."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from attnscope.errors import UsageError
from attnscope.loader import candidates as cand
from attnscope.loader import roles
from attnscope.loader.arguments import Built
from attnscope.loader.call import CallInputs
from attnscope.loader.candidates import Candidate, Frame
from attnscope.loader.expressions import nearest, parse_binding, printable, value_of
from attnscope.loader.importing import run_user_code
from attnscope.loader.names import role_of
from attnscope.loader.probe import (
    Outcome,
    Prober,
    along,
    changed,
    disturb,
    finite_share,
    last_lines,
    time_axis,
)
from attnscope.loader.sizes import BATCH, LENGTH, as_size
from attnscope.loader.stubs import MissingImport
from attnscope.loader.submodule import caught_inputs
from attnscope.preserve import seed_torch

LAYOUTS = ("btc", "tbc", "nc")
_SAME = Candidate("the same", lambda f: None)
_SECONDS = 2.5
_MASKS = ("mask", "padding")
_SEQUENCES = ("key", "value", "query", "main", "memory", "condition")
_ROPE = ("cos", "sin", "complex", "angles", "pair")
_ON_FAILURE = (
    *_ROPE,
    "positions",
    "start",
    "memory",
    "condition",
    "key",
    "value",
    *_MASKS,
    "cache",
    "seqlen",
    "timestep",
)


def make_inputs(
    built: Built,
    inputs: Sequence[str] = (),
    *,
    batch: int = BATCH,
    length: int = LENGTH,
    text_tokens: Sequence[int] | None = None,
    layout: str | None = None,
    causal: bool = True,
) -> CallInputs:
    """Make the arguments of one call.

    Args:
        built: from `construct`, with a module.
        inputs: `--input` texts, `EXPR` (in the order of forward's parameters) or `NAME=EXPR`.
        batch: B where it is free.
        length: T where it is free.
        text_tokens: ids of a text; then T is their number, and equal tokens get equal inputs.
        layout: `btc`, `tbc` or `nc`, where the user said so.
        causal: whether causal attention is meant; a mask that is made is causal then, else lets all through.

    Raises:
        UsageError: an input is wrong, or forward needs what is not installed.
    """
    if built.root is None or built.module is None:
        raise ValueError("the module was not constructed")
    if layout is not None and layout not in LAYOUTS:
        raise UsageError(f"--layout `{printable(layout)}` is not known", "it is btc, tbc or nc")
    search = _Search(built, built.root, batch, length, text_tokens, layout, causal)
    try:
        search.take(inputs)
        made = search.run()
        return caught_inputs(built, made) if built.only else made
    except MissingImport as error:
        raise UsageError(
            f"`{printable(built.target.name)}` cannot run: {printable(error)}", "install it"
        ) from error


class _Search:
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
        self.prober = Prober(module, built.target.environment)
        self.deadline = time.monotonic() + _SECONDS
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
        )
        self.main = self._main_parameter()

    # given inputs

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
        self.given = {n: self._cast(v) for n, v in self.given.items()}
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
        import inspect

        try:
            parameters = inspect.signature(self.module.forward).parameters.values()
        except (TypeError, ValueError):
            return True
        return any(p.kind is p.VAR_KEYWORD for p in parameters)

    def _cast(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            moved = value.to(self.built.device) if self.built.device != "cpu" else value
            wrong = moved.is_floating_point() and self.built.dtype is not None
            return moved.to(self.built.dtype) if wrong else moved
        if type(value) in (tuple, list):
            return type(value)(self._cast(v) for v in value)
        return value

    def _main_parameter(self) -> str:
        for role in ("main", "tokens", "image", "query"):
            for p in self.parameters:
                if p.role == role and (p.required or role != "main"):
                    return p.name
        return self.parameters[0].name if self.parameters else ""

    # values and calls

    def values(self, choice: Mapping[str, Candidate]) -> dict[str, Any]:
        """The value of every argument that is given or chosen, by parameter name, on the CPU."""
        made = dict(self.given)
        for name, candidate in choice.items():
            if name in made or candidate is _SAME:
                continue
            frame = replace(self.frame, C=self.widths[name]) if name in self.widths else self.frame
            made[name] = candidate.make(frame)
        for name, candidate in choice.items():
            if candidate is _SAME and name not in made:
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
        return outcome

    def try_choice(self, choice: Mapping[str, Candidate]) -> Outcome:
        return self.attempt(self.values(choice))

    @property
    def spent(self) -> bool:
        return self.prober.exhausted or time.monotonic() > self.deadline

    # the search

    def run(self) -> CallInputs:
        """Choose everything that was not given."""
        if not self.parameters:
            outcome = self.attempt(self.given)
            return self._result(self.given, outcome, None)
        self._first_choice()
        outcome = self.try_choice(self.choice)
        self.deadline = time.monotonic() + _SECONDS  # the first try may import half of torch
        outcome = self._fit_widths(outcome)
        if not outcome.ran and not self._hopeless(outcome):
            outcome = self._descend(outcome)
        if not outcome.ran and self.main not in self.given and not self._hopeless(outcome):
            outcome = self._other_layouts(outcome)
        if not outcome.ran:
            outcome = self._plainest(outcome)
        if outcome.endless:
            raise UsageError(
                f"`forward` of `{printable(self.built.target.name)}` was stopped: {printable(outcome.error)}",
                "smaller sizes (--arg, --len) or other inputs (--input) may end",
            )
        if outcome.ran:
            outcome = self._settle_lazy(outcome)
        if outcome.ran and self.main not in self.given and self.layout is None:
            outcome = self._prove_layout(outcome)
        proven: bool | None = None
        if outcome.ran:
            outcome, proven = self._prove_masks(outcome)
        return self._result(self.values(self.choice), outcome, proven)

    def _settle_lazy(self, outcome: Outcome) -> Outcome:
        """Lazy layers take their sizes from the call that ran, so that all later calls see one module."""
        if not any(is_lazy(t) for t in [*self.module.parameters(), *self.module.buffers()]):
            return outcome
        args, kwargs, _ = self.call(self.values(self.choice))
        training = {m: m.training for m in self.module.modules()}
        self.module.eval()

        def call() -> Any:
            seed_torch(self.built.seed)
            with torch.no_grad():
                return self.module(*args, **kwargs)

        try:
            run_user_code(self.built.target.environment, call)
        finally:
            for module, mode in training.items():
                module.training = mode
        self.prober = Prober(self.module, self.built.target.environment)
        return self.try_choice(self.choice)

    def _first_choice(self) -> None:
        if self.main not in self.given:
            self.choice[self.main] = cand.MAIN[self.layout or self._likely_layout()]
        for p in self.parameters:
            if p.name in self.given or p.name == self.main or not p.required:
                continue
            options = self._options(p)
            self.choice[p.name] = options[0]

    def _likely_layout(self) -> str:
        p = self.by_name[self.main]
        embeds = any(isinstance(m, nn.Embedding) for m in self.module.modules())
        if p.role == "tokens" and embeds:
            return "ids"
        if p.role == "image":
            return "image"
        seen = roles.unpacked(self.tree, self.main)
        if seen is not None and seen.layout is not None:
            if seen.layout == "nc" and embeds:
                return "ids"
            return seen.layout
        return "btc"

    def _keys(self) -> int:
        """The number of keys: S where a second sequence is attended to, else T."""
        for p in self.parameters:
            if p.role == "memory" and (p.name in self.given or p.name in self.choice):
                value = self.given.get(p.name)
                if isinstance(value, Tensor) and value.dim() >= 2:
                    return value.shape[1]
                if self.choice.get(p.name, _SAME).axes[1:2] == ("S",):
                    return self.frame.S
            if (
                p.role == "key"
                and isinstance(self.given.get(p.name), Tensor)
                and self.given[p.name].dim() >= 2
            ):
                return int(self.given[p.name].shape[1])
        return self.frame.T

    def _mask_options(self, p: roles.Parameter, pattern: str = "causal") -> list[Candidate]:
        prior = roles.mask_convention(self.source, p.name)
        if prior is None and isinstance(self.built.target.tree.body, list):
            import ast

            prior = roles.mask_convention(ast.unparse(self.built.target.tree), p.name)
        block = [cand.block_mask()] if "flex_attention" in self.source and pattern == "causal" else []
        return block + list(
            cand.masks(self.frame, prior, padding=p.role == "padding", keys=self._keys(), pattern=pattern)
        )

    def _options(self, p: roles.Parameter) -> list[Candidate]:
        """What an argument could be, the likeliest first."""
        frame = self.frame
        match p.role:
            case "key" | "value" | "query":
                return [_SAME, *cand.second(11)]
            case "main":
                return [_SAME, *cand.second(11)]
            case "tokens":
                return [cand.MAIN["ids"], cand.MAIN["id"]]
            case "memory":
                return [c for c in cand.second() if "S" in c.axes] + [cand.NONE]
            case "condition":
                return [*cand.second(), _SAME, cand.NONE]
            case "mask" | "padding":
                return [*self._mask_options(p), cand.NONE]
            case "lengths":
                return [Candidate("[0, T]", lambda f: torch.tensor([0, f.T], dtype=torch.int32)), cand.NONE]
            case "bias":
                return cand.biases()
            case "head_mask":
                return [cand.NONE]
            case "cos" | "sin":
                return list(cand.rope_part(frame, p.role))
            case "complex":
                return [*cand.rope_complex(frame), *cand.rope_pairs(frame)]
            case "angles":
                return [
                    *cand.rope_angles(frame),
                    *cand.rope_complex(frame),
                    *cand.rope_pairs(frame),
                    cand.NONE,
                ]
            case "pair":
                return [*cand.rope_pairs(frame), cand.MAIN["btc"], cand.NONE]
            case "positions":
                return cand.positions()
            case "start" | "index":
                return [cand.constant("0", 0), cand.NONE]
            case "cache":
                return cand.caches()
            case "causal":
                return [cand.constant(str(self.causal), self.causal)]
            case "flag":
                return [cand.constant("False", False)]
            case "seqlen":
                return [cand.constant("T", frame.T), cand.constant("0", 0)]
            case "batch":
                return [cand.constant("B", frame.B)]
            case "height":
                return [cand.constant("1", 1), cand.constant("T", frame.T), cand.constant("4", 4)]
            case "width":
                return [cand.constant("T", frame.T), cand.constant("1", 1), cand.constant("5", 5)]
            case "timestep":
                return [
                    Candidate("[B] zeros", lambda f: torch.zeros(f.B, dtype=torch.long), ("B",)),
                    *cand.second(),
                ]
            case _:
                return cand.unknown()

    def _fit_widths(self, outcome: Outcome) -> Outcome:
        """Give each input the width that the first layer which takes it wants; ids where that embeds."""
        for _ in range(4):
            mended = False
            for name, (function, width) in outcome.first.items():
                if name in self.given or name not in self.choice:
                    continue
                if function == "conv2d" and name == self.main and self.choice[name] is cand.MAIN["btc"]:
                    self.choice[name] = cand.MAIN["image"]
                    mended = True
                if function == "embedding":
                    if name == self.main and self.choice[name] not in (cand.MAIN["ids"], cand.MAIN["id"]):
                        self.choice[name] = cand.MAIN["ids"]
                        mended = True
                    if name == self.main and width < self.frame.vocab:
                        self.frame = replace(self.frame, vocab=width)
                        mended = True
                elif not outcome.ran and self._misfits(name, width):
                    if name == self.main:
                        self.frame = replace(self.frame, C=width)
                    else:
                        self.widths[name] = width
                    mended = True
            if not mended or outcome.ran:
                break
            outcome = self.try_choice(self.choice)
        return outcome

    def _misfits(self, name: str, width: int) -> bool:
        ends_in_width = self.choice[name].axes[-1:] == ("C",)
        return ends_in_width and width != self.widths.get(name, self.frame.C)

    def _groups(self) -> list[tuple[str, ...]]:
        """Parameters that are tried together: cos with sin."""
        free = [
            p
            for p in self.parameters
            if p.name not in self.given
            and p.name != self.main
            and (p.required or p.role in _ON_FAILURE)
            and p.role not in ("flag", "causal", "head_mask")
        ]
        pair = tuple(p.name for p in free if p.role in ("cos", "sin"))
        order = [
            "key",
            "value",
            "query",
            "main",
            "memory",
            "condition",
            *_ROPE,
            "positions",
            "start",
            "seqlen",
            "height",
            "width",
        ]
        order += ["timestep", "other", "cache", "mask", "padding"]
        groups: list[tuple[str, ...]] = [
            (p.name,) for p in sorted(free, key=lambda p: order.index(p.role) if p.role in order else 99)
        ]
        if len(pair) == 2:
            groups = [pair, *(g for g in groups if g[0] not in pair)]
        return sorted(groups, key=lambda g: not any(self.by_name[n].required for n in g))

    def _descend(self, outcome: Outcome) -> Outcome:
        """Change one argument (or pair) at a time, keeping what gets furthest, until the call runs."""
        best = outcome
        for _ in range(2):
            before = best.progress
            for group in self._groups():
                parameters = [self.by_name[n] for n in group]
                for options in zip(*(self._options(p) for p in parameters), strict=False):
                    if self.spent:
                        return best
                    choice = {**self.choice, **dict(zip(group, options, strict=True))}
                    tried = self.try_choice(choice)
                    better = tried.ran or (tried.progress > best.progress and parameters[0].role != "other")
                    if better:
                        self.choice, best = choice, tried
                        best = self._fit_widths(best) if not best.ran else best
                    if best.ran or self._hopeless(best):
                        return best
                    if parameters[0].role in _ROPE and not tried.ran:
                        self._learn_dims(tried)
            if best.progress <= before:
                break
        return best

    def _hopeless(self, outcome: Outcome) -> bool:
        return outcome.endless or _cannot_be_a_guess(outcome.error, self.module)

    def _learn_dims(self, outcome: Outcome) -> None:
        """A rope table that does not fit may be told the right size by the error itself."""
        text = str(outcome.error)
        if "must match" in text:
            sizes = [int(n) for n in re.findall(r"\((\d+)\)", text)[:1]]
            new = [
                n
                for n in sizes
                if n > 1 and n not in self.frame.head_dims and n not in (self.frame.T, self.frame.B)
            ]
            if new:
                self.frame = replace(self.frame, head_dims=(*self.frame.head_dims, *new)[:8])

    def _other_layouts(self, outcome: Outcome) -> Outcome:
        """Where the source does not say which rank it wants, others are tried; the first that runs stays."""
        seen = roles.unpacked(self.tree, self.main)
        known = seen.rank if seen is not None else roles.least_rank(self.tree, self.main)
        options = {
            2: ["ids", "nc"],
            3: ["btc", "bct"],
            4: ["image", "bhwc", "heads", "bthd"],
        }.get(known or 0, ["nc", "heads", "bthd", "image", "bhwc", "bct", "ids"])
        if self.layout is not None:
            options = [self.layout]
        kept = dict(self.choice), self.frame, dict(self.widths)
        for length in self._window_lengths():
            self.frame = replace(self.frame, T=length)
            tried = self.try_choice(self.choice)
            if tried.ran:
                return tried
            self.frame = kept[1]
        for name in options:
            if self.spent or cand.MAIN[name] is kept[0].get(self.main):
                continue
            self.choice = {**kept[0], self.main: cand.MAIN[name]}
            self.frame, self.widths = kept[1], {}
            tried = self._fit_widths(self.try_choice(self.choice))
            if not tried.ran and len(self._required_others()) > 0:
                tried = self._descend(tried)
            if tried.ran:
                return tried
        self.choice, self.frame, self.widths = kept
        return outcome

    def _window_lengths(self) -> list[int]:
        """T for modules that are made for one window or one feature map: 7 × 7 tokens."""
        found: list[int] = []
        if self.frame.tokens is not None:
            return found
        for name, value in [*vars(self.module).items(), *self.built.arguments.items()]:
            if re.search(r"window|resolution|fmap|grid|feat_size", name):
                side = value if isinstance(value, tuple) else (value, value)
                if all(as_size(n) for n in side) and 1 < math.prod(side) <= 4096:
                    found.append(math.prod(side))
        return list(dict.fromkeys(found))[:3]

    def _plainest(self, outcome: Outcome) -> Outcome:
        """Nothing runs: sequences are again what they are by custom, as users meet the fault."""
        choice = dict(self.choice)
        for name in self._required_others():
            if self.by_name[name].role in _SEQUENCES and name in choice:
                choice[name] = self._options(self.by_name[name])[0]
        if choice == self.choice:
            return outcome
        self.choice = choice
        return self.try_choice(choice)

    def _required_others(self) -> list[str]:
        return [
            p.name for p in self.parameters if p.required and p.name != self.main and p.name not in self.given
        ]

    # proofs

    def _prove_layout(self, outcome: Outcome) -> Outcome:
        """[T, B, C] where a batch entry of axis 0 is seen by the others of axis 0 and of axis 1 by none."""
        flipped = {"btc": "tbc", "ids": "tb"}.get(self._layout_name(None))
        if flipped is None or outcome.output is None:
            return outcome
        seen = roles.unpacked(self.tree, self.main)
        if seen is not None and seen.rank >= 2:
            return outcome
        values = self.values(self.choice)
        x = values[self.main]
        output = outcome.output
        if output.dim() < 2 or output.shape[:2] != x.shape[:2]:
            return outcome
        moved = x.clone()
        moved[0] = disturb(x[0], 0, 0, self.frame.vocab)  # no factor, no shift: a norm would undo those
        other = self.attempt({n: moved if v is x else v for n, v in values.items()})
        difference = changed(output, other.output)
        if difference is None:
            return outcome
        rows, columns = along(difference, 0), along(difference, 1)
        if any(rows[1:]) and not any(columns[1:]):
            choice = {**self.choice, self.main: cand.MAIN[flipped]}
            swapped = self.try_choice(choice)
            if swapped.ran:
                self.choice = choice
                return swapped
        return outcome

    def _disturbed(self, values: Mapping[str, Any], axis: int, index: int) -> dict[str, Any]:
        """The same call with other numbers at one token of the main input, and of what follows it."""
        main = values[self.main]
        made = disturb(main, axis, index, self.frame.vocab)
        out: dict[str, Any] = {}
        for name, value in values.items():
            if value is main:
                out[name] = made
            elif self.choice.get(name) is _SAME and isinstance(value, Tensor):
                out[name] = disturb(value, axis, index, self.frame.vocab)
            else:
                out[name] = value
        return out

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

    def is_causal(self, values: Mapping[str, Any], outcome: Outcome) -> bool | None:
        """True when earlier outputs do not move with the last token and the last moves with the first."""
        main, axes = values.get(self.main), self.time_axes()
        if not isinstance(main, Tensor) or axes is None or outcome.output is None:
            return None
        length = main.shape[axes[0]]
        out_axis = time_axis(outcome.output, length, axes[1])
        if out_axis is None or length < 3:
            return None
        if finite_share(outcome.output) < 1.0:
            return False
        late = self.attempt(self._disturbed(values, axes[0], length - 1))
        early = self.attempt(self._disturbed(values, axes[0], 0))
        a, b = changed(outcome.output, late.output), changed(outcome.output, early.output)
        if a is None or b is None:
            return None
        return not any(along(a, out_axis)[:-1]) and along(b, out_axis)[-1]

    def _hides_first(self, values: Mapping[str, Any], outcome: Outcome) -> bool:
        """With key 0 blocked, token 0 moves no output but its own; unblocked it moves some."""
        axes = self.time_axes()
        source = next(
            (
                p.name
                for p in self.parameters
                if p.role == "memory" and isinstance(values.get(p.name), Tensor)
            ),
            self.main,
        )
        value = values.get(source)
        if not isinstance(value, Tensor) or axes is None or outcome.output is None:
            return False
        axis = axes[0] if source == self.main else 1
        if source == self.main:
            other = self.attempt(self._disturbed(values, axis, 0))
        else:
            other = self.attempt({**values, source: disturb(value, axis, 0, self.frame.vocab)})
        difference = changed(outcome.output, other.output)
        out_axis = time_axis(outcome.output, self.frame.T, axes[1])
        if difference is None or out_axis is None:
            return False
        moved = along(difference, out_axis)
        start = 1 if source == self.main else 0
        later = outcome.output.narrow(out_axis, start, outcome.output.shape[out_axis] - start)
        return not any(moved[start:]) and finite_share(later) == 1.0

    def _prove_masks(self, outcome: Outcome) -> tuple[Outcome, bool | None]:
        """Find for each mask the convention that the module proves to use, and whether the call is causal."""
        required = [
            p
            for p in self.parameters
            if p.role in _MASKS and p.name in self.choice and p.name not in self.given
        ]
        for p in required:
            if self.choice[p.name] is not cand.NONE:
                outcome = self._prove_mask(p, outcome, must=True)
        causal = self.is_causal(self.values(self.choice), outcome)
        if self.causal and causal is False and not roles.makes_own_mask(self.source):
            for p in self.parameters:
                free = p.name not in self.given and p.name not in self.choice
                if p.role in ("mask", "causal") and not p.required and free:
                    tried = (
                        self._prove_mask(p, outcome, must=False)
                        if p.role == "mask"
                        else self._flag(p, outcome)
                    )
                    if tried is not outcome:
                        return tried, True
        return outcome, causal

    def _flag(self, p: roles.Parameter, outcome: Outcome) -> Outcome:
        choice = {**self.choice, p.name: cand.constant("True", True)}
        tried = self.try_choice(choice)
        if tried.ran and self.is_causal(self.values(choice), tried):
            self.choice = choice
            return tried
        return outcome

    def _prove_mask(self, p: roles.Parameter, outcome: Outcome, must: bool) -> Outcome:
        keys = self._keys()
        fallback: tuple[Candidate, Outcome] | None = None
        for candidate in self._mask_options(p):
            if self.spent:
                break
            per_query = "T" in candidate.axes
            if not per_query and not must:
                continue
            crossed = per_query and keys != self.frame.T
            tested = candidate if per_query and not crossed else cand.repattern(candidate, "first", keys)
            choice = {**self.choice, p.name: tested}
            tried = self.try_choice(choice)
            if not tried.ran:
                continue
            values = self.values(choice)
            holds = (
                self.is_causal(values, tried)
                if per_query and not crossed
                else self._hides_first(values, tried)
            )
            if holds:
                final = self._final(candidate, per_query and not crossed, keys)
                self.choice = {**self.choice, p.name: final}
                return self.try_choice(self.choice)
            if fallback is None and finite_share(tried.output) == 1.0:
                fallback = candidate, tried
        if must and fallback is not None:
            per_query = "T" in fallback[0].axes and keys == self.frame.T
            self.choice = {**self.choice, p.name: self._final(fallback[0], per_query, keys)}
            return self.try_choice(self.choice)
        return outcome

    def _final(self, candidate: Candidate, per_query: bool, keys: int) -> Candidate:
        return candidate if per_query and self.causal else cand.repattern(candidate, "all", keys)

    # the result

    def _result(self, values: Mapping[str, Any], outcome: Outcome, causal: bool | None) -> CallInputs:
        cast: dict[int, Any] = {id(v): self._cast(v) for v in values.values()}
        values = {n: cast[id(v)] for n, v in values.items()}
        main = values.get(self.main)
        args, kwargs, names = self.call(values)
        axes = {n: self._axes(n, v) for n, v in values.items() if isinstance(v, Tensor)}
        layout = self._layout_name(main)
        mask = next(
            (c.convention for n, c in self.choice.items() if c.convention and n not in self.given), ""
        )
        return CallInputs(
            tuple(args),
            kwargs,
            tuple(names),
            axes,
            layout,
            self.frame.B,
            self.frame.T,
            self._say(values),
            outcome.error,
            self._doubt(outcome),
            causal,
            mask,
            frozenset(n for n in self.choice if n not in self.given),
        )

    def _layout_name(self, main: Any) -> str:
        if self.main in self.given:
            return self.given_layout(main) if isinstance(main, Tensor) else ""
        chosen = self.choice.get(self.main)
        return next((n for n, c in cand.MAIN.items() if c is chosen), "")

    def _axes(self, name: str, value: Tensor) -> tuple[str | None, ...]:
        candidate = self.choice.get(name)
        if name not in self.given and candidate is not None and candidate is not _SAME:
            return candidate.axes if len(candidate.axes) == value.dim() else (None,) * value.dim()
        if candidate is _SAME:
            return self._axes(self.main, value)
        role = self.by_name[name].role if name in self.by_name else "other"
        if role in ("main", "tokens", "query", "key", "value", "memory") or name == self.main:
            layout = self.given_layout(value)
            if layout == "tbc" and value.dim() == 3:
                named: tuple[str | None, ...] = ("T", "B", "C")
            elif layout == "ids":
                named = ("B", "T") if value.dim() == 2 else ("T",)
            elif value.dim() == 2:
                named = ("T", "C")
            else:
                named = ("B", "T", "C")
            if role in ("memory", "key", "value") and "T" in named:
                index = named.index("T")
                if value.shape[index] != self.frame.T:
                    named = (*named[:index], "S", *named[index + 1 :])
            return named if len(named) == value.dim() else (None,) * value.dim()
        if role in _MASKS and value.dim() >= 2:
            return self._mask_axes(value)
        return (None,) * value.dim()

    def _mask_axes(self, value: Tensor) -> tuple[str | None, ...]:
        """Axes of a mask that the user gave, as far as its sizes tell them."""
        names: list[str | None] = [None] * value.dim()
        if value.shape[-1] == self._keys():
            names[-1] = "S"
        if value.shape[-2] == self.frame.T and self.frame.T not in (1, self.frame.B):
            names[-2] = "T"
        if names[0] is None and value.shape[0] == self.frame.B and self.frame.B > 1:
            names[0] = "B"
        return tuple(names)

    def _say(self, values: Mapping[str, Any]) -> str:
        parts: list[str] = []
        for name, candidate in self.choice.items():
            if name in self.given:
                continue
            value = values.get(name)
            if candidate is _SAME:
                parts.append(
                    f"{name}={self.main}" if value is values.get(self.main) else f"{name} like {self.main}"
                )
            elif isinstance(value, Tensor) and candidate.axes and not candidate.convention:
                shape = ", ".join(
                    f"{a} {n}" if a else str(n) for a, n in zip(candidate.axes, value.shape, strict=False)
                )
                ids = " token ids" if not value.is_floating_point() and self._is_ids(name) else ""
                parts.append(f"{name}=[{shape}]{ids}")
            else:
                parts.append(
                    f"{name}: {candidate.label}" if candidate.convention else f"{name}={candidate.label}"
                )
        return printable(", ".join(parts), 400)

    def _is_ids(self, name: str) -> bool:
        return self.choice[name] in (cand.MAIN["ids"], cand.MAIN["tb"], cand.MAIN["id"])

    def _doubt(self, outcome: Outcome) -> str:
        """Where the call failed and the failure changes with a guess, the guess may be to blame."""
        if outcome.ran or self._hopeless(outcome):
            return ""
        certain = (*_SEQUENCES, "flag", "causal", "head_mask")
        beside = [n for n in self._required_others() if self.by_name[n].role not in certain]
        lines = last_lines(outcome.error)
        doubtful = [n for n in beside if any(re.search(_words(self.by_name[n]), line) for line in lines)]
        if not doubtful:
            return ""
        wants = ", ".join(f"`{printable(p.name)}`" for p in self.parameters if p.required)
        name = doubtful[0]
        return (
            f"forward wants {wants}, and no `{printable(name)}` that was tried fits;"
            f' give it with --input "{printable(name)}=torch.…"'
        )


def _words(p: roles.Parameter) -> str:
    """A pattern for the names under which source speaks of an argument."""
    words = {
        "mask": "mask",
        "padding": "mask|pad",
        "complex": "freq|cis|rot",
        "pair": "cos|sin|rope|rot",
        "cache": "cache",
    }
    usual = words.get(p.role) or ("cos|sin|rot" if p.role in ("cos", "sin") else "")
    return rf"\b{re.escape(p.name)}\b" + (f"|{usual}" if usual else "")


def _cannot_be_a_guess(error: BaseException | None, module: nn.Module) -> bool:
    """An unknown name, or an attribute that a module of the user's lacks, has nothing to do with inputs."""
    if isinstance(error, AttributeError):
        kinds = {type(m).__name__ for m in module.modules()}
        return any(printable(error).startswith(f"'{kind}' object has no attribute") for kind in kinds)
    return isinstance(error, (NameError, SyntaxError, ImportError))


def _image_size(built: Built) -> tuple[int, int, int] | None:
    """Channels, height and width where the constructor takes the size of an image."""
    side, channels = None, 3
    for name, value in built.arguments.items():
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
