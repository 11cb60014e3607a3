"""What is known when a module raises: the exception, where in its life, and what ran before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnscope.schema import Step

Phase = Literal["construct", "forward", "backward", "move", "load"]


@dataclass(frozen=True)
class Crash:
    """One exception and its surroundings.

    `module` is the `nn.Module` instance (None when its constructor raised), `cls` its class. `steps` are
    what ran before the fault; the last one has `error` set if a tensor operation raised. `state` is the
    state dict that was being loaded, `device` the device that was moved to; both may be None.
    """

    error: BaseException
    phase: Phase = "forward"
    module: Any | None = None
    steps: tuple[Step, ...] = ()
    cls: type | None = None
    state: Mapping[str, Any] | None = field(default=None, repr=False)
    device: str | None = None
