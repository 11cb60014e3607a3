"""Other guesses for a constructor: one that runs is used; where one gets further, the crash hangs on it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from attnscope.errors import UsageError
from attnscope.loader.arguments import Built, Guess
from attnscope.loader.blame import Failure, code_of, said
from attnscope.loader.call import CallInputs
from attnscope.loader.expressions import printable
from attnscope.loader.names import is_size
from attnscope.loader.probe import user_frames
from attnscope.loader.reading import kept_as_attributes, reads_alone
from attnscope.source import node_at

_MOST = 16
_SIZE_VARIANTS = (1, 2)
_ACTIVATIONS = (nn.GELU(), F.gelu, nn.GELU, "relu")


@dataclass(frozen=True)
class Change:
    """Another guess: all sizes at once (they must fit each other), or one argument or field by its name."""

    names: tuple[str, ...] = ()
    variant: int = 0
    instead: Mapping[str, Any] = field(default_factory=dict)
    unknown: bool = False
    fixed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """A module and a call of it, or the exception that constructing or calling it raised."""

    built: Built
    call: CallInputs | None = None
    raised: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        if self.raised is not None or self.built.error is not None:
            return self.raised or self.built.error
        return self.call.error if self.call is not None else None

    @property
    def constructed(self) -> bool:
        return self.built.module is not None

    def failure(self) -> Failure:
        assert self.error is not None
        steps = self.call.steps if self.call is not None and self.raised is None else 0
        return Failure.of(self.error, steps)


def settled(first: Made, again: Callable[[Change], Made]) -> Made:
    """`first`, or what was made with another guess where `first` raises and that does not.

    Raises UsageError where another guess gets further and none runs: the crash is not the module's, until
    the values that were guessed are given.
    """
    error, guessed = first.error, first.built.guessed
    if error is None or not guessed or isinstance(error, (NameError, SyntaxError, ImportError)):
        return first
    namespace = vars(first.built.target.module)
    kept = {name: namespace[name] for name in guessed if name in namespace}
    moved: Change | None = None
    for change in _changes(first):
        try:
            made = again(change)
        except UsageError:
            continue
        if made.error is None:
            return made
        if moved is None and _gets_further(first, made, change.unknown):
            moved = change
    namespace.update(kept)
    moved = moved or _read(first)
    if moved is not None:
        raise _hangs(first, moved)
    return first


def _read(made: Made) -> Change | None:
    """A guess without a known role of which alone the failing operation has an operand.

    Where a part of a guess is asked for that its type does not have, its role does not matter.
    """
    built = made.built
    unasked = _asks_for_a_part(made.error)
    unknown = {n: n for n, guess in built.guessed.items() if guess.role is None or unasked}
    target = built.target.factory
    constructor = code_of(getattr(target, "__init__", None) if isinstance(target, type) else target)
    given = {constructor: unknown} if constructor is not None else {}
    forward = code_of(built.module.forward) if built.module is not None else None
    if forward is not None:
        given[forward] = kept_as_attributes(constructor, unknown)
    found = reads_alone(made.error, given) if unknown else None
    return Change((found,)) if found else None


def _asks_for_a_part(error: BaseException | None) -> bool:
    """`window[0]` or `dims.width` of something that has no parts: another type is meant."""
    if not isinstance(error, TypeError | AttributeError):
        return False
    frames = user_frames(error)
    place = node_at(frames[-1][0].f_code, frames[-1][2]) if frames else None
    return place is not None and isinstance(place[1], ast.Subscript | ast.Attribute)


def _gets_further(first: Made, other: Made, unknown: bool) -> bool:
    if first.constructed is not other.constructed:
        return other.constructed
    if first.built.phase == other.built.phase == "state_dict":
        return str(first.error) != str(other.error)
    return first.failure().moves(other.failure(), unknown)


def _changes(made: Made) -> list[Change]:
    built = made.built
    guessed = built.guessed
    sizes = tuple(name for name, guess in guessed.items() if is_size(guess.role))
    variants = [n for n in _SIZE_VARIANTS if n != built.variant] if sizes else []
    given = _given_sizes(made.call) if made.call is not None and sizes else {}
    found = [Change(sizes, built.variant, fixed=given)] if given else []
    found += [Change(sizes, variant) for variant in variants]
    asked = _asks_for_a_part(made.error)
    absent = tuple(name for name, guess in guessed.items() if guess.value is None)
    if len(absent) > 1:  # what one of them needs to be, the others do as well
        found.append(Change(absent, built.variant, dict.fromkeys(absent, built.sizes.C), unknown=True))
    for name, guess in guessed.items():
        if name in sizes and asked:
            found.append(Change((name,), built.variant, {name: (guess.value, guess.value)}, unknown=True))
        if name not in sizes:
            unknown = guess.role is None or guess.value is None
            found += [
                Change((name,), built.variant, {name: other}, unknown) for other in _others(guess, built)
            ]
    return found[:_MOST]


def _given_sizes(call: CallInputs) -> dict[str, int]:
    """The sizes that the inputs of the user's own have: width, tokens and ids."""
    values = {**dict(zip(call.names, call.args, strict=False)), **call.kwargs}
    given = [v for n, v in values.items() if n not in call.guessed and isinstance(v, Tensor) and v.dim() > 1]
    if not given:
        return {}
    if given[0].is_floating_point():
        return {"C": given[0].shape[-1], "T": call.length + 1}
    return {"vocab": int(given[0].max()) + 1, "T": call.length + 1} if given[0].numel() else {}


def _others(guess: Guess, built: Built) -> Iterator[Any]:
    """What else is sensible for a value of that kind."""
    value, sizes = guess.value, built.sizes
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from (1, sizes.C, nn.Identity(), nn.LayerNorm)
    elif guess.role == "act":
        yield from _ACTIVATIONS
    elif isinstance(value, str):
        yield None
    elif isinstance(value, int):
        yield from (n for n in (1, 2, sizes.H) if n != value)
    elif isinstance(value, float):
        yield 1


def _hangs(first: Made, change: Change) -> UsageError:
    what = "`forward`" if first.constructed else f"`{printable(first.built.target.name)}`"
    if first.built.phase == "state_dict":
        what = "`load_state_dict`"
    guesses = [
        f"`{printable(n)}` is {printable(repr(first.built.guessed[n].value), 40)}" for n in change.names[:4]
    ]
    how = " ".join(f"--arg {printable(n)}=…" for n in change.names[:4])
    it, kind = ("it", "a guess") if len(guesses) == 1 else ("them", "guesses")
    return UsageError(
        f"{what} raises {said(first.error)}, and that hangs on {kind}: {', '.join(guesses)}",
        f"give {it} with {how}",
    )
