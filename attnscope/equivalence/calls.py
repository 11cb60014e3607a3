"""The same call for two modules, each in its own layout and mask convention, for any batch and length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnscope.equivalence.sides import Side
from attnscope.errors import UsageError
from attnscope.loader import CallInputs, make_inputs
from attnscope.loader.expressions import parse_binding, printable, value_of
from attnscope.loader.importing import run_user_code
from attnscope.loader.roles import Parameter, forward_parameters
from attnscope.sandbox.state import seeded
from attnscope.sandbox.tensors import tensors_of

BATCH = 3
LENGTHS = (1, 2, 5, 7)
LONGEST = 64


@dataclass
class Result:
    """What a call gave: its tensors in canonical layout, what it returned, or what it raised."""

    tensors: list[Tensor] = field(default_factory=list)
    returned: Any = None
    error: BaseException | None = None
    main: Tensor | None = None

    @property
    def ran(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Calls:
    """Calls of one side, cut from one that has the largest batch and length."""

    side: Side
    inputs: CallInputs
    parameters: tuple[Parameter, ...]

    @property
    def batch(self) -> int:
        return self.inputs.batch

    @property
    def length(self) -> int:
        return self.inputs.length

    @property
    def main(self) -> Any:
        """The main input, [B, T, C] or ids [B, T] in the module's own layout."""
        return self.inputs.args[0] if self.inputs.args else next(iter(self.inputs.kwargs.values()), None)

    def canonical_main(self) -> Tensor | None:
        """The main input with batch and tokens in front."""
        return self.to_canonical(self.main) if isinstance(self.main, Tensor) else None

    def to_canonical(self, value: Tensor) -> Tensor:
        """A tensor of this side as [B, T, …]."""
        layout = self.inputs.layout
        if layout == "tbc" and value.dim() >= 2:
            return value.transpose(0, 1)
        return value.unsqueeze(0) if layout in ("nc", "id") and value.dim() < 4 else value

    def from_canonical(self, value: Tensor) -> Tensor:
        layout = self.inputs.layout
        if layout == "tbc":
            return value.transpose(0, 1).contiguous()
        return value[0] if layout in ("nc", "id") else value

    def with_main(self, value: Tensor) -> Calls:
        """The same calls with another main input, also where it is key and value."""
        old = self.main
        args = tuple(value if item is old else item for item in self.inputs.args)
        kwargs = {name: value if item is old else item for name, item in self.inputs.kwargs.items()}
        return replace(self, inputs=replace(self.inputs, args=args, kwargs=kwargs))

    def at(
        self, batch: int, length: int, dtype: torch.dtype | None, start: int = 0
    ) -> tuple[list[Any], dict[str, Any]]:
        """Arguments for the first `batch` entries and `length` tokens from `start` on; copies."""
        memo: dict[int, Any] = {}
        names = [*self.inputs.names] + [f"argument {i}" for i in range(len(self.inputs.args))]

        def cut(name: str, value: Any) -> Any:
            if id(value) in memo:
                return memo[id(value)]
            made = self._cut(name, value, batch, length, start, dtype)
            if isinstance(value, Tensor):
                memo[id(value)] = made
            return made

        args = [cut(name, value) for name, value in zip(names, self.inputs.args, strict=False)]
        return args, {name: cut(name, value) for name, value in self.inputs.kwargs.items()}

    def _cut(
        self, name: str, value: Any, batch: int, length: int, start: int, dtype: torch.dtype | None
    ) -> Any:
        if isinstance(value, Tensor):
            new = value.detach()
            axes = self.inputs.axes.get(name, (None,) * value.dim())
            if len(axes) != value.dim():
                axes = (None,) * value.dim()
            for axis, (size, letter) in enumerate(zip(value.shape, axes, strict=True)):
                if letter == "B" or (letter is None and self._is(size, self.batch) and axis <= 1):
                    new = new.narrow(axis, 0, min(batch, size)) if size == self.batch else new
                elif letter == "T" and size == self.length:
                    new = new.narrow(axis, start, length)
                elif size == self.length and (letter == "S" or (letter is None and self._is(size, size))):
                    # Keys are all tokens up to the last query.
                    new = (
                        new.narrow(axis, 0, start + length)
                        if letter == "S"
                        else new.narrow(axis, start, length)
                    )
            new = new.clone()
            return new.to(dtype) if dtype is not None and new.is_floating_point() else new
        if type(value) in (tuple, list):
            return type(value)(self._cut(name, item, batch, length, start, dtype) for item in value)
        if isinstance(value, int) and not isinstance(value, bool):
            role = next((p.role for p in self.parameters if p.name == name), "")
            if role == "seqlen" and value == self.length:
                return length
            if role == "batch" and value == self.batch:
                return batch
        return value

    def _is(self, size: int, wanted: int) -> bool:
        """Whether an axis without a name can be told by its size: no other axis has it."""
        return size == wanted and (size != self.length or self.length != self.batch)

    def run(
        self,
        module: nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        seed: int = 0,
        grad: bool = False,
    ) -> Result:
        """Call `module` with its random numbers seeded. With `grad`, the main input collects a gradient."""
        main = args[0] if args else next(iter(kwargs.values()), None)
        leaf: Tensor | None = None
        if grad and isinstance(main, Tensor) and main.is_floating_point():
            leaf = main.detach().clone().requires_grad_(True)
            args = [leaf if item is main else item for item in args]
            kwargs = {name: leaf if item is main else item for name, item in kwargs.items()}

        def call() -> Any:
            torch.default_generator.manual_seed(seed)
            with torch.set_grad_enabled(grad):
                return module(*args, **kwargs)

        try:
            returned = run_user_code(self.side.environment, call)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Result(error=error)
        return Result([self.to_canonical(t) for t in tensors_of(returned)], returned, None, leaf)


def make_calls(
    sides: tuple[Side, Side],
    inputs: Sequence[Any],
    inputs_a: Sequence[Any],
    inputs_b: Sequence[Any],
    *,
    causal: bool,
    layout: str | None,
    seed: int,
    dtype: torch.dtype | None,
) -> tuple[Calls, Calls]:
    """The calls of both sides, with the same numbers in them.

    Raises UsageError for inputs that neither takes, and where the modules take inputs of different shapes.
    """
    length = max(max(LENGTHS), min([LONGEST, *(side.context or 16 for side in sides)]))
    contexts = [side.context for side in sides if side.context]
    length = min([length, *contexts])
    own = []
    for side, more in zip(sides, (inputs_a, inputs_b), strict=True):
        own.append([*_taken(inputs, side), *more])
    for text in inputs:
        if isinstance(text, str) and not any(text in texts for texts in own):
            raise UsageError(
                f"neither module's forward has an argument `{printable(parse_binding(text).name)}`"
            )
    made = []
    for side, texts in zip(sides, own, strict=True):
        made.append(_make(side, texts, length, causal, layout, seed, dtype))
    twins = _shapes(sides[0].module) == _shapes(sides[1].module)
    return _shared(made[0], made[1], twins)


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {
        name: () if isinstance(value, nn.parameter.UninitializedParameter) else tuple(value.shape)
        for name, value in module.named_parameters()
    }


def _taken(inputs: Sequence[Any], side: Side) -> list[Any]:
    """The `--input` texts that this side's forward has an argument for."""
    names = {p.name for p in forward_parameters(side.module)}
    return [
        value
        for value in inputs
        if not isinstance(value, str) or (name := parse_binding(value).name) is None or name in names
    ]


def _make(
    side: Side,
    inputs: Sequence[Any],
    length: int,
    causal: bool,
    layout: str | None,
    seed: int,
    dtype: torch.dtype | None,
) -> Calls:
    parameters = tuple(forward_parameters(side.module))
    if isinstance(side.module, nn.MultiheadAttention) and len(inputs) <= 1:
        x = _one_input(inputs, layout, seed)
        return Calls(side, _mha(side.module, x, length, causal, seed), parameters)
    if any(not isinstance(value, str) for value in inputs):
        return Calls(side, _as_given(inputs, parameters, layout), parameters)
    with seeded(seed):
        made = make_inputs(side.built, inputs, batch=BATCH, length=length, layout=layout, causal=causal)
    return Calls(side, made, parameters)


def _one_input(inputs: Sequence[Any], layout: str | None, seed: int) -> Tensor | None:
    """The one sequence that was given, as [B, T, C]."""
    if not inputs:
        return None
    value = inputs[0]
    if isinstance(value, str):
        names = {"torch": torch, "B": BATCH, "T": max(LENGTHS)}
        torch.default_generator.manual_seed(seed)
        value = value_of(parse_binding(value).expression, names, "--input")
    if not isinstance(value, Tensor) or value.dim() not in (2, 3):
        raise UsageError(
            "nn.MultiheadAttention takes one tensor [B, T, C]", 'as in --input "torch.randn(2, 5, 16)"'
        )
    value = value[None] if value.dim() == 2 else value
    return value.transpose(0, 1) if layout == "tbc" else value


def _as_given(inputs: Sequence[Any], parameters: Sequence[Parameter], layout: str | None) -> CallInputs:
    """A call with values from Python; axis 0 is B and axis 1 is T unless `layout` says otherwise."""
    if any(isinstance(value, str) for value in inputs):
        raise UsageError("inputs are all values or all expressions", "give tensors alone")
    main = inputs[0]
    if not isinstance(main, Tensor) or main.dim() < 1:
        raise UsageError("the first input is no tensor", "give [B, T, C] or token ids [B, T]")
    known = layout or ("nc" if main.dim() == 1 or (main.dim() == 2 and main.is_floating_point()) else "btc")
    front: dict[str, tuple[str | None, ...]] = {"tbc": ("T", "B"), "nc": ("T",), "btc": ("B", "T")}
    letters = front[known] + (None,) * main.dim()
    size = dict(zip(letters, main.shape, strict=False))
    names = tuple(p.name for p in parameters)[: len(inputs)]
    names += tuple(f"argument {i}" for i in range(len(names), len(inputs)))
    main_axes = tuple("C" if i == main.dim() - 1 and i > 1 else letters[i] for i in range(main.dim()))
    return CallInputs(
        tuple(inputs), {}, names, {names[0]: main_axes}, known, size.get("B", 1), size["T"] or 1
    )


def _mha(
    module: nn.MultiheadAttention, given: Tensor | None, length: int, causal: bool, seed: int
) -> CallInputs:
    """`nn.MultiheadAttention` on one sequence with itself, under a causal mask of its own polarity."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, length, module.embed_dim, generator=generator) if given is None else given
    batch, length = x.shape[:2]
    kwargs: dict[str, Any] = {"need_weights": False}
    if causal:
        kwargs["attn_mask"] = torch.ones(length, length, dtype=torch.bool).triu(1)
    if not module.batch_first:
        x = x.transpose(0, 1).contiguous()
    main = ("B", "T", "C") if module.batch_first else ("T", "B", "C")
    names = ("query", "key", "value")
    axes: dict[str, tuple[str | None, ...]] = dict.fromkeys(names, main)
    return CallInputs(
        args=(x, x, x),
        kwargs=kwargs,
        names=names,
        axes={**axes, "attn_mask": ("T", "S")},
        layout="btc" if module.batch_first else "tbc",
        batch=batch,
        length=length,
        causal=causal,
        mask="blocked" if causal else "",
    )


def _shared(a: Calls, b: Calls, twins: bool) -> tuple[Calls, Calls]:
    """Put A's numbers into B's call; a side that cannot run its own call is given the other's."""
    if a.inputs.error is not None and b.inputs.error is None:
        a = _translated(b, a)
    elif b.inputs.error is not None and a.inputs.error is None:
        b = _translated(a, b)
    x, y = a.canonical_main(), b.canonical_main()
    if x is None or y is None:
        return a, b
    if x.shape[0] != y.shape[0] and "nc" in (a.inputs.layout, b.inputs.layout):
        x, y = x[:1], y[:1]
    if x.is_floating_point() != y.is_floating_point():
        kinds = ["embeddings" if v.is_floating_point() else "token ids" for v in (x, y)]
        raise UsageError(f"A takes {kinds[0]} and B takes {kinds[1]}: they have no input in common")
    if x.shape != y.shape:
        raise UsageError(
            f"A takes {list(x.shape)} and B takes {list(y.shape)}: they have no input in common",
            "give both the same sizes with --arg, --arg-a and --arg-b",
        )
    b = b.with_main(b.from_canonical(x.to(y.dtype)))
    # Two versions of one class get one mask: what one proves to want may be its very fault.
    return (_with_same(b, a, masks=True) if twins else a), _with_same(a, b, masks=False)


def _with_same(a: Calls, b: Calls, *, masks: bool) -> Calls:
    """B's call with A's tensors under the same names, where they have the same shapes.

    A mask that was made is in the convention that its module proves to use; only with `masks` is it shared.
    """
    made = {p.name for p in b.parameters if p.role in ("mask", "padding") and p.name in b.inputs.guessed}
    values = dict(zip(a.inputs.names, a.inputs.args, strict=False)) | dict(a.inputs.kwargs)

    def same(name: str, own: Any) -> Any:
        other = values.get(name)
        if masks is not (name in made):
            return own
        if own is b.main or not isinstance(own, Tensor) or not isinstance(other, Tensor) or other is a.main:
            return own
        return other if other.shape == own.shape and (masks or other.dtype == own.dtype) else own

    args = tuple(same(n, v) for n, v in zip(b.inputs.names, b.inputs.args, strict=False))
    kwargs = {n: same(n, v) for n, v in b.inputs.kwargs.items()}
    return replace(b, inputs=replace(b.inputs, args=args, kwargs=kwargs))


def _translated(good: Calls, bad: Calls) -> Calls:
    """The call that runs, for the other side: by the names of the arguments, as far as it has them."""
    names = {p.name for p in bad.parameters}
    values = dict(zip(good.inputs.names, good.inputs.args, strict=False)) | dict(good.inputs.kwargs)
    if not set(values) <= names:
        return bad
    args = tuple(values[n] for n in good.inputs.names)
    kwargs = dict(good.inputs.kwargs)
    return replace(bad, inputs=replace(good.inputs, args=args, kwargs=kwargs, error=bad.inputs.error))
