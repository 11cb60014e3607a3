"""What is checked: a module, one call of it, and which axis of which argument is the batch and which the
tokens.

A `Subject` never runs the module itself: `run` works on deep copies, so that whatever the module does to
itself stays there. Nothing here judges.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from attnscope.sandbox.copying import cloned, copied
from attnscope.sandbox.guard import preserved, walk
from attnscope.sandbox.state import quiet, seeded, written_out
from attnscope.sandbox.tensors import first_tensor, tree_map
from attnscope.schema import Span

HALF = (torch.float16, torch.bfloat16)

Axes = Mapping[str, tuple[str | None, ...]]


@dataclass(frozen=True)
class Outcome:
    """What one call gave: the result and its first tensor, or what was raised."""

    result: Any = None
    output: Tensor | None = None
    error: BaseException | None = None


Kind = Literal["self", "cross", "encoder"]


@dataclass(frozen=True)
class Sibling:
    """Another attention of the same target over the same stream of tokens.

    `visible` [T, S] is True where some head of some entry gave a key weight; `span` is where it is made.
    """

    path: str
    visible: Any = field(repr=False)
    span: Span | None = None

    @property
    def causal(self) -> bool:
        """Whether no token gives weight to a later one, and some token does to an earlier one."""
        t, s = self.visible.shape
        own = (
            self.visible[:, s - t :] if s >= t else self.visible
        )  # after keys of no token, or of earlier ones
        past = np.tri(t, k=-1, dtype=bool)
        return s >= t and not own[~np.tri(t, dtype=bool)].any() and own[past].any()


@dataclass(frozen=True)
class Part:
    """What is known of a subject that is one attention of a larger target.

    `path` is its module's, `also` are those of equal layers. `kind` says where keys come from: `self` from
    the queries' tokens, `cross` from another sequence, `encoder` from the queries' tokens in a target whose
    other attentions look at them as a second sequence. `tokens` is the argument that has the queries'
    tokens, `together` are all arguments that hold them. `owned` are the numbers, in order, of the attentions
    of its run that are its own, `numbers` what those of its run have in the target's. `siblings` are those
    of the same kind over the same tokens. `whole` is the lab of the target.
    """

    path: str
    also: tuple[str, ...] = ()
    kind: Kind = "self"
    tokens: str | None = None
    together: tuple[str, ...] = ()
    owned: frozenset[int] = frozenset()
    numbers: tuple[int, ...] = ()
    siblings: tuple[Sibling, ...] = ()
    whole: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Subject:
    """A module and one call of it.

    `names` are the names of the positional arguments; `axes` names the axes of tensor arguments (`B`, `T`,
    `S`, `C` or None). `causal` is what the user said is meant: True, False, or None when nothing was said.
    `guessed` are arguments that nobody gave. `environment` wraps each call of the user's code. `rebuild`
    constructs the module anew with other random numbers, where that is possible. `part` is set where the
    module is one attention of a larger target. `elsewhere` constructs the module on the meta device, where
    its constructor takes a device that nobody gave. `switches` construct it with one bool argument, that
    nobody gave, the other way round.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...]
    axes: Axes
    causal: bool | None = None
    guessed: frozenset[str] = frozenset()
    dtype: torch.dtype | None = None
    title: str = ""
    environment: Callable[[], Any] = nullcontext
    rebuild: Callable[[int], nn.Module] | None = field(default=None, repr=False)
    part: Part | None = field(default=None, repr=False)
    elsewhere: Callable[[], nn.Module | None] | None = field(default=None, repr=False)
    switches: Mapping[str, Callable[[], nn.Module | None]] = field(default_factory=dict, repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """Each argument under its name."""
        return {**dict(zip(self.names, self.args, strict=False)), **self.kwargs}

    @property
    def main(self) -> str | None:
        """The name of the first argument that has tokens: floats [.., T, C] or ids [B, T]."""
        if self.part is not None and self.part.tokens is not None:
            return self.part.tokens
        for name, value in self.arguments.items():
            if isinstance(value, Tensor) and "T" in self.axes.get(name, ()) and "S" not in self.axes[name]:
                return name
        return None

    def with_arguments(self, values: Mapping[str, Any]) -> Subject:
        """The same call with some arguments exchanged."""
        args = tuple(values.get(name, old) for name, old in zip(self.names, self.args, strict=False)) + tuple(
            self.args[len(self.names) :]
        )
        kwargs = {name: values.get(name, old) for name, old in self.kwargs.items()}
        kwargs |= {
            name: value for name, value in values.items() if name not in kwargs and name not in self.names
        }
        return replace(self, args=args, kwargs=kwargs)

    def in_double(self) -> Subject | None:
        """The same call in double precision, on a copy; None where the module cannot be copied or cast."""
        made = copied(self.module)
        if made is None:
            return None
        try:
            with quiet(self.environment):
                made.double()
        except KeyboardInterrupt:
            raise
        except BaseException:
            return None
        memo: dict[int, Any] = {}
        return replace(
            self,
            module=made,
            args=tree_map(_doubled, self.args, memo),
            kwargs=tree_map(_doubled, dict(self.kwargs), memo),
        )

    def run(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        train: bool = False,
        grad: bool = False,
        seed: int = 0,
        module: nn.Module | None = None,
        fresh: bool = True,
    ) -> Outcome:
        """Call a copy of the module (or the given one as it is, with `fresh` false) once."""
        called = self.with_arguments(values) if values else self
        target = module if module is not None else self.module
        kept: Any = nullcontext()
        if fresh:
            copy = copied(target)
            kept = preserved(target, (*called.args, *called.kwargs.values())) if copy is None else kept
            target = target if copy is None else copy  # a module may define what its truth is
        with kept, quiet(self.environment), seeded(seed), torch.set_grad_enabled(grad), written_out():
            try:
                target.train(train)
                result = target(*cloned(called.args), **cloned(dict(called.kwargs)))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                return Outcome(error=error)
        output = first_tensor(result)
        return Outcome(
            result,
            output if output is not None and (output.is_floating_point() or output.is_complex()) else None,
        )


def names_of(module: nn.Module, number: int) -> tuple[str, ...]:
    """The names of so many positional arguments of `forward`."""
    try:
        known = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        known = []
    named = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return tuple(named[i] if i < len(named) else f"argument {i}" for i in range(number))


def _doubled(value: Tensor) -> Tensor:
    value = value.detach()
    if value.is_floating_point():
        return widened(value)
    return value.to(torch.complex128) if value.is_complex() else value


def widened(value: Tensor) -> Tensor:
    """In double precision; the lowest number of a narrower type stays the lowest."""
    info = torch.finfo(value.dtype)
    wide = value.double()
    return torch.where(wide <= info.min, torch.finfo(torch.float64).min, wide) if value.numel() else wide


def parts(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Each registered module with its path."""
    return list(walk(module))
