"""Promises that every drawing keeps, at every width, with and without colour and Unicode, for any text."""

from __future__ import annotations

import dataclasses
import time
import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnscope.diagnostic import Diagnostic, Label
from attnscope.render import show
from attnscope.render.terminal import Lines, Style
from attnscope.render.tokens import draw_tokens
from attnscope.schema import LayerInfo, MaskOrigin, Span
from tests.render import made
from tests.render.test_golden import DRAWINGS, crash

STYLES = [(True, False), (False, False), (True, True), (False, True)]
CONTROLS = {"Cc", "Cf", "Cs"}


def check(draw: Callable[[Style], Lines], width: int, tidy: bool = False) -> None:
    for unicode, color in STYLES:
        style = Style(width, unicode=unicode, color=color, heat=color)
        for line in draw(style):
            assert line.cell_len <= width, (width, line.plain)
            assert unicode or line.plain.isascii(), line.plain
            assert not any(unicodedata.category(char) in CONTROLS for char in line.plain), repr(line.plain)
            if not color:
                assert not line.spans, line
            if tidy and not color:
                assert line.plain == line.plain.rstrip(), repr(line.plain)


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.parametrize("width", [40, 61, 80, 100, 139, 140, 200])
def test_no_line_is_wider_than_the_width(name: str, width: int) -> None:
    check(DRAWINGS[name], width, tidy=True)


HOSTILE = (
    "[bold red]x[/] \x1b[31m \x1b]8;;http://x\x07 \x00 \ud83d \u202e \u200d 👩\u200d🚀 日本語 <|endoftext|>"
    + " \\ \t\n "
    + "long" * 40
)


def hostile_trace(text: str) -> Callable[[Style], Lines]:
    span = Span(text, 3, 5, 3, 9)
    finding = Diagnostic(
        "AS1", "error", text, span, text, (Label(span, text),), (text,), text, ((text, text), (text, text))
    )
    steps = made.Steps(file=text, module=text)
    steps.add(1, text, text, text, [dataclasses.replace(made.info("B 1"), axes=(text,), dtype=text)])
    steps.add(2, text, text, text, [], inputs=[made.info("B 1, T 6")], error=text)
    attention = dataclasses.replace(made.attention(), module=text, note=text)
    attention = dataclasses.replace(attention, mask_origin=MaskOrigin("buffer", text, text, 3))
    trace = made.trace(steps.steps, [attention])
    trace = dataclasses.replace(
        trace,
        model=made.model(layer=None, target=text, config={text: text}, weights=text, guesses=(text,)),
        tokens=made.tokens([text] * 6),
        findings=(finding,),
        notes=(text,),
        embedding=text,
    )
    return lambda style: show.trace_lines(style, trace)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_hostile_text_is_drawn_as_text(width: int) -> None:
    check(hostile_trace(HOSTILE), width)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=40))
def test_any_text_is_drawn_as_text(text: str) -> None:
    check(hostile_trace(text), 60)


def test_markup_stays_as_it_is() -> None:
    layer = LayerInfo("[bold]", "[red]title[/red]", "[link=x]", ("--a",), (("[b]", "[d_out]"),), "x")
    text = "\n".join(line.plain for line in show.object_lines(Style(80), [layer]))
    assert "[bold]  [red]title[/red]" in text
    assert "[link=x]" in text


@pytest.mark.parametrize("pieces", [["·w"] * 20_000, ["x" * 100_000], [""], []])
def test_long_and_empty_texts(pieces: list[str]) -> None:
    start = time.process_time()
    check(lambda style: draw_tokens(style, made.tokens(pieces)), 80)
    assert time.process_time() - start < 20


def test_a_long_flow_counts_what_it_leaves_out() -> None:
    tokens = made.tokens(["·w"] * 20_000)
    lines = [line.plain for line in draw_tokens(Style(80), tokens)]
    shown = sum(line.count("·w") for line in lines)
    assert lines[0] == "tokens  20,000 tokens"
    assert any(f"{20_000 - shown:,} tokens not shown" in line for line in lines)
    whole = draw_tokens(Style(80), tokens, all_rows=True)
    assert sum(line.plain.count("·w") for line in whole) == 20_000


def test_an_empty_trace_is_drawn() -> None:
    trace = dataclasses.replace(made.trace([], []), tokens=(), output=None)
    text = "\n".join(line.plain for line in show.trace_lines(Style(80), trace))
    assert "no tensor step was recorded" in text
    assert "no attention was found" in text


def test_the_failing_step_and_its_findings_come_last() -> None:
    lines = [line.plain for line in crash(Style(80))]
    failed = next(number for number, line in enumerate(lines) if line.startswith("✗   22"))
    finding = next(number for number, line in enumerate(lines) if line.startswith("error[AS101]"))
    assert failed < finding
    assert lines[-3:] == ["1 error, 1 warning", "", "note: a note"]


def test_a_scalar_and_a_tensor_of_no_axes_are_drawn() -> None:
    steps = made.Steps()
    steps.add(1, "sum", "", "loss", [made.info("")])
    check(lambda style: show.trace_lines(style, made.trace(steps.steps, []), show=("shapes",)), 80)
    assert made.info("").shape == ()
    assert np.prod(made.info("").shape) == 1
