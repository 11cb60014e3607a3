"""One call of `forward`: its arguments, what they are called, and what was guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnscope.sandbox.copying import cloned


@dataclass(frozen=True)
class CallInputs:
    """One call of `forward`.

    `axes` names the axes of each tensor argument by parameter name (None: no name). `layout` is `btc`,
    `tbc`, `nc`, `ids`, `heads`, `image` … `guesses` is one line, empty when nothing was guessed. `error` is
    what the call raised when it was tried on a copy (None: it ran); `doubt`, where a guess may be to blame
    and not the module, says what `forward` wants and which option would give it. `causal` is what the
    tries showed (None: not known). `mask` is the convention of a mask that was made, `steps` how
    many calls of torch were made.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...]
    axes: Mapping[str, tuple[str | None, ...]]
    layout: str
    batch: int
    length: int
    guesses: str = ""
    error: BaseException | None = None
    doubt: str = ""
    causal: bool | None = None
    mask: str = ""
    steps: int = 0
    guessed: frozenset[str] = field(default_factory=frozenset)

    def fresh(self) -> tuple[list[Any], dict[str, Any]]:
        """Copies for one call, since forward may write to what it gets; what was one object stays one."""
        memo: dict[int, Any] = {}
        return list(cloned(self.args, memo)), cloned(dict(self.kwargs), memo)
