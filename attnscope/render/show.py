"""One entry point per object: a drawing of all of it, and its printing on a console."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from attnscope.diagnostic import Diagnostic, Report
from attnscope.render.findings import draw_findings
from attnscope.render.header import draw_header
from attnscope.render.layers import draw_layers
from attnscope.render.layout import blank, paragraph
from attnscope.render.mask import draw_attention_masks, draw_mask
from attnscope.render.report import draw_report
from attnscope.render.shapes import draw_shapes
from attnscope.render.terminal import Lines, Style, emit
from attnscope.render.tokens import draw_tokens
from attnscope.render.weights import draw_weights
from attnscope.schema import LayerInfo, Mask, Token, Trace

SECTIONS = ("tokens", "shapes", "mask", "weights")


def trace_lines(
    style: Style,
    trace: Trace,
    show: Sequence[str] = SECTIONS,
    heads: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    precision: int = 2,
) -> Lines:
    """Header, the sections that `show` names in the order of SECTIONS, findings, notes."""
    parts: list[Lines] = [draw_header(style, trace.model, [trace.embedding] if trace.embedding else [])]
    if "tokens" in show and trace.tokens:
        parts.append(draw_tokens(style, trace.tokens))
    if "shapes" in show:
        parts.append(draw_shapes(style, trace.steps, trace.output))
    attention = trace.attention if "mask" in show or "weights" in show else ()
    if "mask" in show and attention:
        picked = [one for number, one in enumerate(attention) if layers is None or number in layers]
        parts.append(draw_attention_masks(style, picked))
    if "weights" in show:
        parts.append(
            draw_weights(style, attention, trace.tokens, heads=heads, layers=layers, precision=precision)
        )
    if trace.findings:
        parts.append(draw_findings(style, trace.findings))
    if trace.notes:
        parts.append([line for note in trace.notes for line in paragraph(style, f"note: {note}", look="dim")])
    lines: Lines = []
    for part in parts:
        if part:
            lines += [*([blank()] if lines else []), *part]
    return lines


def report_lines(style: Style, report: Report) -> Lines:
    """Findings and what was tried. The trace of a report is drawn by who wants it (`trace_lines`)."""
    return draw_report(style, report)


def object_lines(style: Style, obj: object) -> Lines:
    """The drawing of any object that a command or a function returns."""
    if isinstance(obj, Trace):
        return trace_lines(style, obj)
    if isinstance(obj, Mask):
        return draw_mask(style, obj)
    if isinstance(obj, Report):
        return draw_report(style, obj)
    if isinstance(obj, Diagnostic):
        return draw_findings(style, [obj], summary=False)
    if isinstance(obj, Sequence) and not isinstance(obj, str | bytes):
        if all(isinstance(item, Token) for item in obj):
            return draw_tokens(style, list(obj))
        if all(isinstance(item, LayerInfo) for item in obj):
            return draw_layers(style, list(obj))
        if all(isinstance(item, Diagnostic) for item in obj):
            return draw_findings(style, list(obj))
    raise TypeError(f"nothing is drawn for {type(obj).__name__}")


def show_trace(
    trace: Trace,
    console: Console,
    style: Style,
    show: Sequence[str] = SECTIONS,
    heads: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    precision: int = 2,
) -> None:
    emit(console, trace_lines(style, trace, show, heads, layers, precision))


def show_mask(mask: Mask, console: Console, style: Style) -> None:
    emit(console, draw_mask(style, mask))


def show_tokens(tokens: Sequence[Token], console: Console, style: Style, facts: str = "") -> None:
    emit(console, draw_tokens(style, tokens, facts))


def show_layers(layers: Sequence[LayerInfo], console: Console, style: Style) -> None:
    emit(console, draw_layers(style, layers))


def show_report(report: Report, console: Console, style: Style) -> None:
    emit(console, report_lines(style, report))


def show_findings(findings: Sequence[Diagnostic], console: Console, style: Style) -> None:
    emit(console, draw_findings(style, findings))
