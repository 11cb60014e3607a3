"""One entry point per object: a drawing of all of it, and its printing on a console.

Each function imports what it draws with when it is called: `attnscope mask` must not wait for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnscope.render.terminal import Lines, Style, emit
from attnscope.schema import LayerInfo, Mask, Reshaping, Token, Trace

if TYPE_CHECKING:
    from rich.console import Console

    from attnscope.diagnostic import Diagnostic, Report

SECTIONS = ("tokens", "shapes", "mask", "weights")


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
    from attnscope.render.header import draw_header
    from attnscope.render.layout import blank, paragraph

    parts: list[Lines] = [draw_header(style, trace.model, [trace.embedding] if trace.embedding else [])]
    if "tokens" in show and trace.tokens:
        from attnscope.render.tokens import draw_tokens

        parts.append(draw_tokens(style, trace.tokens))
    if "shapes" in show:
        from attnscope.render.shapes import draw_shapes

        parts.append(draw_shapes(style, trace.steps, trace.output))
    if "mask" in show:
        from attnscope.render.mask import draw_attention_masks

        parts.append(draw_attention_masks(style, trace.attention, layers))
    if "weights" in show and (trace.attention or not trace.findings):  # a crash came before there were any
        from attnscope.render.weights import draw_weights

        parts.append(
            draw_weights(
                style, trace.attention, trace.tokens, heads=heads, layers=layers, precision=precision
            )
        )
    if trace.findings:
        from attnscope.render.findings import draw_findings

        parts.append(draw_findings(style, trace.findings))
    if trace.notes:
        notes = [line for note in trace.notes for line in paragraph(style, note, first="note: ", look="dim")]
        parts.append(notes)
    lines: Lines = []
    for part in parts:
        if part:
            lines += [*([blank()] if lines else []), *part]
    return lines


def mask_lines(style: Style, mask: Mask) -> Lines:
    """The grid of one mask, and the lines of torch that build it."""
    from attnscope.render.mask import draw_mask

    return draw_mask(style, mask)


def tokens_lines(style: Style, tokens: Sequence[Token], facts: str = "", all_rows: bool = False) -> Lines:
    """The tokens alone; `facts` (the encoding) stand behind their number."""
    from attnscope.render.tokens import draw_tokens

    return draw_tokens(style, tokens, facts, all_rows)


def layers_lines(style: Style, layers: Sequence[LayerInfo]) -> Lines:
    """What is built in."""
    from attnscope.render.layers import draw_layers

    return draw_layers(style, layers)


def report_lines(style: Style, report: Report) -> Lines:
    """Findings and what was tried. The trace of a report is drawn by who wants it (`trace_lines`)."""
    from attnscope.render.report import draw_report

    return draw_report(style, report)


def findings_lines(style: Style, findings: Sequence[Diagnostic], summary: bool = True) -> Lines:
    """Findings alone, and (with `summary`) a line that counts them."""
    from attnscope.render.findings import draw_findings

    return draw_findings(style, findings, summary)


def object_lines(style: Style, obj: object) -> Lines:
    """The drawing of any object that a command or a function returns. Raises TypeError for others."""
    from attnscope.comparison import Comparison
    from attnscope.diagnostic import Diagnostic, Report, Survey

    if isinstance(obj, Comparison):
        from attnscope.render.compare import draw_comparison

        return draw_comparison(style, obj)
    if isinstance(obj, Trace):
        return trace_lines(style, obj)
    if isinstance(obj, Mask):
        return mask_lines(style, obj)
    if isinstance(obj, Reshaping):
        from attnscope.render.reshape import draw_reshaping

        return draw_reshaping(style, obj)
    if isinstance(obj, Survey):
        from attnscope.render.survey import draw_survey

        return draw_survey(style, obj)
    if isinstance(obj, Report):
        return report_lines(style, obj)
    if isinstance(obj, Diagnostic):
        return findings_lines(style, [obj], summary=False)
    if isinstance(obj, Sequence) and not isinstance(obj, str | bytes):
        if all(isinstance(item, Token) for item in obj):
            return tokens_lines(style, list(obj))
        if all(isinstance(item, LayerInfo) for item in obj):
            return layers_lines(style, list(obj))
        if all(isinstance(item, Diagnostic) for item in obj):
            return findings_lines(style, list(obj))
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
    emit(console, mask_lines(style, mask))


def show_tokens(
    tokens: Sequence[Token], console: Console, style: Style, facts: str = "", all_rows: bool = False
) -> None:
    emit(console, tokens_lines(style, tokens, facts, all_rows))


def show_layers(layers: Sequence[LayerInfo], console: Console, style: Style) -> None:
    emit(console, layers_lines(style, layers))


def show_report(report: Report, console: Console, style: Style) -> None:
    emit(console, report_lines(style, report))


def show_findings(findings: Sequence[Diagnostic], console: Console, style: Style) -> None:
    emit(console, findings_lines(style, findings))
