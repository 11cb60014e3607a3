"""Groups of options: each is declared once, shown in a panel of its own, and handed over as one object.

A command's function takes groups and single options alike:

    def run(target: Annotated[str, typer.Argument()], weights: Weights, output: Output) -> None: ...
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar


@dataclass(frozen=True)
class Group:
    """Options that belong together. A field is one option: `Annotated[type, typer.Option(...)] = default`.

    `PANEL` is the title above them in `--help`.
    """

    PANEL: ClassVar[str] = "Options"


def among(known: Iterable[str] | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """For `autocompletion`: those of the known values that begin with what was typed."""

    def begun(incomplete: str) -> list[str]:
        return [value for value in (known() if callable(known) else known) if value.startswith(incomplete)]

    return begun


def flat(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with every option a parameter of its own, as the parser wants it."""
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, type[Group]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and issubclass(kind, Group):
            groups[parameter.name] = kind
            parameters += _members(kind)
        else:
            kind = _in_panel(kind, Group.PANEL)
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{one.name: values.pop(one.name) for one in fields(kind)})
        function(**values)

    call.__doc__ = function.__doc__
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _members(group: type[Group]) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    for one in fields(group):
        yield inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=_in_panel(hints[one.name], group.PANEL),
        )


def _in_panel(kind: Any, panel: str) -> Any:
    """The declaration of an option, in this panel unless it names another."""
    if typing.get_origin(kind) is not Annotated:
        return kind
    bare, declared = typing.get_args(kind)[:2]
    declared = copy(declared)
    declared.rich_help_panel = declared.rich_help_panel or panel
    return Annotated[bare, declared]
