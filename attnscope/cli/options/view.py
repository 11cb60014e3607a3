"""What of a trace is shown: sections, heads, layers, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from attnscope.cli.options import Group, among
from attnscope.cli.options.output import Destination, send
from attnscope.cli.options.sections import chosen
from attnscope.errors import UsageError

if TYPE_CHECKING:
    from attnscope.api import Keep
    from attnscope.render.terminal import Lines, Style
    from attnscope.schema import Trace

SECTIONS = ("tokens", "shapes", "mask", "weights")
WHOLE_UP_TO = 128
"""With more keys than this no number can be read: weights are reduced to this many cells as they come."""

MOST_IN_JSON = 25_000_000
"""About half a gigabyte of text, and several while it is made."""


@dataclass(frozen=True)
class Show(Group):
    """Sections of a trace, and what is picked of its attention."""

    PANEL: ClassVar[str] = "What is shown"

    show: Annotated[
        list[str] | None,
        typer.Option(
            "--show",
            metavar="SECTIONS",
            help="tokens, shapes, mask, weights: one or several, by commas.",
            autocompletion=among(SECTIONS),
        ),
    ] = None
    head: Annotated[
        list[int] | None,
        typer.Option("--head", metavar="N", help="Only this head's weights (repeatable; from 0)."),
    ] = None
    layer_index: Annotated[
        list[int] | None,
        typer.Option("--layer-index", metavar="N", help="Only this layer's attention (repeatable; from 0)."),
    ] = None
    precision: Annotated[
        int | None, typer.Option("--precision", metavar="N", help="Decimals of the weights (default: 2).")
    ] = None
    scores: Annotated[bool, typer.Option("--scores", help="JSON: also the scores before the mask.")] = False
    values: Annotated[bool, typer.Option("--values", help="JSON: also the numbers of every step.")] = False
    inner: Annotated[bool, typer.Option("--inner", help="Also show the steps of PyTorch's own code.")] = False

    def view(self, to: Destination) -> View:
        """Check what was asked to be shown, before any work is done for it."""
        sections = chosen(self.show, SECTIONS)
        self._check_sections(sections)
        for option, given in (("--scores", self.scores), ("--values", self.values)):
            if given and not to.json:
                raise UsageError(f"{option} is for JSON", "add --format json")
        if self.precision is not None:
            if to.json:
                raise UsageError("--precision has no use for JSON, which is exact", "leave it out")
            if not 0 <= self.precision <= 8:
                raise UsageError(f"--precision {self.precision} is out of range", "from 0 to 8 would work")
        return View(
            to,
            sections,
            tuple(dict.fromkeys(self.head)) if self.head else None,
            tuple(dict.fromkeys(self.layer_index)) if self.layer_index else None,
            2 if self.precision is None else self.precision,
            self.scores,
            self.values,
            self.inner,
        )

    def _check_sections(self, sections: Sequence[str]) -> None:
        """An option that is for a section which is not shown is an error, never ignored."""
        needs = {
            "--head": (bool(self.head), "weights"),
            "--precision": (self.precision is not None, "weights"),
            "--scores": (self.scores, "weights"),
            "--values": (self.values, "shapes"),
        }
        for option, (given, section) in needs.items():
            if given and section not in sections:
                raise UsageError(
                    f"{option} has no use without the section {section}",
                    f"add it to --show, or leave {option} out",
                )
        if self.layer_index and "weights" not in sections and "mask" not in sections:
            raise UsageError(
                "--layer-index has no use without the section mask or weights", "add one to --show"
            )


@dataclass(frozen=True, slots=True)
class View:
    """What of a trace is shown, and where."""

    to: Destination
    sections: tuple[str, ...]
    heads: tuple[int, ...] | None
    layers: tuple[int, ...] | None
    precision: int
    scores: bool
    values: bool
    inner: bool

    def keep(self) -> Keep:
        """What the run must keep so that this can be shown; nothing else is."""
        from attnscope.api import Keep

        weights = "weights" in self.sections
        return Keep(
            attention=weights or "mask" in self.sections,
            weights=weights,
            cells=None if self.to.json else WHOLE_UP_TO,
            scores=self.scores,
            values=self.values,
            inner=self.inner,
            output=self.to.json,
        )

    def send(self, trace: Trace) -> None:
        try:
            self._check_picks(trace)
        except UsageError:
            if not any(finding.severity == "error" for finding in trace.findings):
                raise
            # The crash came before what was picked, and is what there is to say.
            sections = tuple(one for one in self.sections if one not in ("mask", "weights"))
            return replace(self, sections=sections, heads=None, layers=None).send(trace)
        if self.to.json:
            trace = self._picked(trace)
        send(self.to, trace, "trace", self._draw(trace), self._edit)

    def _picked(self, trace: Trace) -> Trace:
        """The trace with the layers that were asked for; refused if it would be too much to read back."""
        picked = [
            one for number, one in enumerate(trace.attention) if self.layers is None or number in self.layers
        ]
        numbers = sum(prod(one.shape) for one in picked if one.weights is not None)
        if "weights" in self.sections and numbers > MOST_IN_JSON:
            raise UsageError(
                f"{numbers:,} weights are too many for JSON, which takes {MOST_IN_JSON:,}",
                "pick layers with --layer-index, leave weights out of --show, or take a shorter text",
            )
        return replace(trace, attention=tuple(picked))

    def _check_picks(self, trace: Trace) -> None:
        found = trace.attention if self.heads is not None or self.layers is not None else ()
        if self.layers is not None:
            for number in self.layers:
                if not 0 <= number < len(found):
                    raise UsageError(f"there is no layer {number}", _range("--layer-index", len(found)))
            found = tuple(found[number] for number in self.layers)
        for head in self.heads or ():
            most = max((one.heads for one in found), default=0)
            if not 0 <= head < most:
                raise UsageError(f"there is no head {head}", _range("--head", most))

    def _draw(self, trace: Trace) -> Any:
        def draw(style: Style) -> Lines:
            from attnscope.render.show import trace_lines

            return trace_lines(style, trace, self.sections, self.heads, self.layers, self.precision)

        return draw

    def _edit(self, body: dict[str, Any]) -> dict[str, Any]:
        """JSON with the sections and heads that were asked for; a section left out is no key."""
        sections = self.sections
        for one in body["attention"]:
            one["heads"] = [h for h in one["heads"] if self.heads is None or h["head"] in self.heads]
            if "weights" not in sections:
                del one["heads"]
            if "mask" not in sections:
                del one["mask"], one["mask_origin"]
        dropped = {"tokens": "tokens" not in sections, "steps": "shapes" not in sections}
        dropped["attention"] = "mask" not in sections and "weights" not in sections
        return {key: value for key, value in body.items() if not dropped.get(key, False)}


def _range(option: str, number: int) -> str:
    if number == 0:
        return "no attention was found"
    return f"{option} 0 would work" if number == 1 else f"{option} from 0 to {number - 1} would work"
