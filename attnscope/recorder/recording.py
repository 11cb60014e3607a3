"""What one run of a module leaves behind: raw events, sizes that were asked for, calls of modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnscope.ops.calls import Op
from attnscope.recorder.capture import Capture
from attnscope.recorder.tensors import Ref
from attnscope.sandbox.guard import walk

# What is kept of a tensor, no storage and no values: shape, stride, dtype, device. A bare tuple, since one
# is made for each tensor of a run.
Made = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]


class Event(NamedTuple):
    """One call that the recorder saw.

    `code` and `lasti` are the instruction in the innermost frame of the user's; `direct` is False when
    PyTorch's own code made the call. `outputs` are serials; `memory` is one of `view`, `new`, `in-place`.
    """

    op: Op
    code: CodeType | None
    lasti: int
    direct: bool
    call: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[int, ...]
    memory: str
    depth: int
    error: str | None = None
    values: tuple[Any, ...] | None = None


# One call of a module: which, from inside which other call (-1: none), the serials of its positional tensor
# arguments (None for others) and of its keyword ones.
Call = tuple[nn.Module, int, tuple[Ref | None, ...], Mapping[str, Ref]]


@dataclass
class Recording:
    """Everything noted during one run. `result` is what the module returned, `error` what it raised."""

    root: nn.Module
    raw: list[tuple[Any, ...]] = field(default_factory=list)
    sizes: list[tuple[CodeType, int, int, Any]] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    leaves: dict[int, int] = field(default_factory=dict)
    arguments: list[tuple[str, int]] = field(default_factory=list)
    input_axes: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    capture: Capture | None = None
    result: Any = None
    result_serial: int | None = None
    error: BaseException | None = None
    missed: int = 0  # calls that could not be noted, since a tensor-like refused to be asked

    @cached_property
    def events(self) -> list[Event]:
        """The calls in the order in which they returned."""
        return [Event(*raw) for raw in self.raw]

    @cached_property
    def paths(self) -> dict[int, str]:
        """The dotted path of each registered module, by id."""
        return {id(module): path for path, module in walk(self.root)}

    @cached_property
    def owned(self) -> dict[int, tuple[str, str]]:
        """By id: whether a leaf is a `buffer`, a `parameter` or an `attribute`, and its dotted name."""
        owned: dict[int, tuple[str, str]] = {}
        for path, module in walk(self.root):
            state = vars(module)
            tables = (("buffer", "_buffers"), ("parameter", "_parameters"))
            named = [(kind, state.get(table) or {}) for kind, table in tables]
            for kind, values in [*named, ("attribute", state)]:
                for name, value in list(values.items()):
                    if isinstance(value, Tensor):
                        owned.setdefault(id(value), (kind, f"{path}.{name}" if path else name))
        return owned

    @property
    def said_missed(self) -> list[str]:
        """What could not be noted, in words; empty where everything was."""
        said = []
        if self.missed:
            said.append(f"{self.missed} step{'s' if self.missed > 1 else ''} could not be noted")
        if self.capture is not None and self.capture.missed:
            kinds = ", ".join(dict.fromkeys(self.capture.missed))
            said.append(f"attention may be missing: what these steps did could not be followed: {kinds}")
        return said

    def path_of(self, call: int) -> str:
        """The dotted path of a call's module; the class in angle brackets if it is not registered."""
        if call < 0:
            return ""
        module = self.calls[call][0]
        known = self.paths.get(id(module))
        return known if known is not None else f"<{type(module).__name__}>"
