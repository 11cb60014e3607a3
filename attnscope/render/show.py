"""The way in: each object's drawing, and where it goes. What draws is imported when something is drawn.

`attnscope mask` must not wait for what it does not draw; nobody outside needs another file to draw with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import IO

from attnscope.comparison import Comparison
from attnscope.diagnostic import Report, Survey
from attnscope.render.terminal import ColorChoice, Lines, Style, draw_text, emit, make_console
from attnscope.schema import Attention, Diagnostic, LayerInfo, Mask, Reshaping, Token, Trace

__all__ = [
    "SECTIONS",
    "ColorChoice",
    "Lines",
    "Style",
    "emit",
    "make_console",
    "message_lines",
    "object_lines",
    "run_lines",
    "say",
    "shown",
    "trace_lines",
    "weights_lines",
]

SECTIONS = ("tokens", "shapes", "mask", "weights")
# Who draws an object, or a sequence of such objects.
_ALONE: dict[type, str] = {
    Trace: "show:trace_lines",
    Mask: "mask:draw_mask",
    Reshaping: "reshape:draw_reshaping",
    Report: "report:draw_report",
    Survey: "survey:draw_survey",
    Diagnostic: "findings:draw_finding",
    Comparison: "compare:draw_comparison",
}
_SEQUENCES: dict[type, str] = {
    Token: "tokens:draw_tokens",
    LayerInfo: "layers:draw_layers",
    Diagnostic: "findings:draw_findings",
}


def object_lines(style: Style, obj: object) -> Lines:
    """The drawing of any object that a command or a function returns. Raises TypeError for others."""
    for kind, drawer in _ALONE.items():
        if isinstance(obj, kind):
            return _drawn(drawer, style, obj)
    if isinstance(obj, Sequence) and not isinstance(obj, str | bytes):
        for kind, drawer in _SEQUENCES.items():
            if all(isinstance(item, kind) for item in obj):
                return _drawn(drawer, style, obj)
    raise TypeError(f"nothing is drawn for {type(obj).__name__}")


def _drawn(drawer: str, style: Style, obj: object) -> Lines:
    module, _, name = drawer.partition(":")
    lines: Lines = getattr(import_module(f"attnscope.render.{module}"), name)(style, obj)
    return lines


def trace_lines(
    style: Style,
    trace: Trace,
    show: Sequence[str] = SECTIONS,
    heads: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    precision: int = 2,
) -> Lines:
    """Header, the sections that `show` names in the order of SECTIONS, findings, notes.

    `heads` and `layers` pick what `mask` and `weights` show (all by default); `precision` is the number of
    decimals of a weight. A section that has nothing to show is left out, but for `weights`, which says so.
    """
    from attnscope.render.findings import draw_findings
    from attnscope.render.header import draw_header
    from attnscope.render.layout import notes, spaced
    from attnscope.render.mask import draw_attention_masks
    from attnscope.render.shapes import draw_shapes
    from attnscope.render.tokens import draw_tokens
    from attnscope.render.weights import draw_weights

    parts = [draw_header(style, trace.model, [trace.embedding] if trace.embedding else [])]
    if "tokens" in show and trace.tokens:
        parts.append(draw_tokens(style, trace.tokens))
    if "shapes" in show:
        parts.append(draw_shapes(style, trace.steps, trace.output))
    if "mask" in show:
        parts.append(draw_attention_masks(style, trace.attention, layers))
    if "weights" in show and (trace.attention or not trace.findings):  # a crash came before there were any
        picked = draw_weights(
            style, trace.attention, trace.tokens, heads=heads, layers=layers, precision=precision
        )
        parts.append(picked)
    return spaced([*parts, draw_findings(style, trace.findings), notes(style, trace.notes)])


def run_lines(style: Style, report: Report) -> Lines:
    """What `run` and `watch` say: the last steps up to a fault, the findings, notes."""
    from attnscope.render.report import draw_run

    return draw_run(style, report)


def weights_lines(style: Style, attention: Sequence[Attention], title: str) -> Lines:
    """The weights of every head of one forward."""
    from attnscope.render.layout import blank, paragraph
    from attnscope.render.weights import draw_weights

    return [*paragraph(style, title, look="title"), blank(), *draw_weights(style, attention), blank()]


def message_lines(style: Style, text: str, first: str = "") -> Lines:
    """A message of attnscope's own, wrapped."""
    from attnscope.render.layout import paragraph

    return paragraph(style, text, first=first)


def say(
    draw: Callable[[Style], Lines], stream: IO[str], width: int | None = None, color: ColorChoice = "auto"
) -> None:
    """Print a drawing on a stream that is no result's; a closed one swallows it."""
    console, style = make_console(width, color, stream)
    with console.capture() as captured:
        emit(console, draw(style))
    text = captured.get()
    with suppress(OSError, ValueError):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = getattr(stream, "encoding", None) or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def shown(obj: object, html: bool = False) -> str:
    """How an object shows itself: as text where it is printed, as HTML in a notebook."""
    if html:
        from attnscope.render.save import html_block

        return html_block(obj)
    return draw_text(lambda style: object_lines(style, obj), color="never").rstrip("\n")
