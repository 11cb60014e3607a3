"""The drawings, exactly, at fixed widths, with Unicode and without."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence

import pytest
from rich.text import Text

from attnscope.render import as_json, show, weights
from attnscope.render.findings import draw_findings
from attnscope.render.terminal import Lines, Style, emit, make_console
from attnscope.render.tokens import draw_tokens
from attnscope.schema import Step
from tests.render import made

Draw = Callable[[Style], Lines]


def stack(failing: bool = False) -> Sequence[Step]:
    """Three equal blocks with a residual addition between them; the last one may fail."""
    steps = made.Steps()
    for block in range(3):
        made.forward_steps(module=f"blocks.{block}.attn", into=steps, fails=failing and block == 2)
        if not (failing and block == 2):
            steps.module = f"blocks.{block}"
            steps.add(31, "add", "x + attn(x)", "x", [made.info("B 1, T 6, C 16")])
    return steps.steps


def crash(style: Style) -> Lines:
    trace = dataclasses.replace(
        made.trace(stack(failing=True)), output=None, findings=(made.BUG, made.FUTURE), notes=("a note",)
    )
    return show.trace_lines(style, trace, show=("shapes",))


DRAWINGS: dict[str, Draw] = {
    "trace": lambda style: show.trace_lines(style, made.trace()),
    "stack": lambda style: show.trace_lines(style, made.trace(stack()), show=("shapes",)),
    "crash": crash,
    "mask_8": lambda style: show.object_lines(style, made.mask(8)),
    "mask_cache": lambda style: show.object_lines(style, made.mask(2, 6)),
    "mask_300": lambda style: show.object_lines(style, made.mask(300)),
    "picture": lambda style: weights.draw_weights(style, [made.attention(queries=50)], heads=[1]),
    "overview": lambda style: weights.draw_weights(style, [made.attention("h.0", heads=9, queries=50)]),
    "layers": lambda style: show.object_lines(style, made.LAYERS),
    "report": lambda style: show.object_lines(style, made.report()),
    "flow": lambda style: draw_tokens(style, made.tokens([f"·w{n}" for n in range(999)]), "bytes"),
}
PLACES = {
    "80": Style(80),
    "160": Style(160),
    "80_ascii": Style(80, unicode=False),
}
SAME_AT_160 = {"mask_8", "mask_cache", "layers", "flow"}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing(name: str, place: str, golden: Callable[[str, str], None]) -> None:
    if place == "160" and name in SAME_AT_160:
        pytest.skip("differs from that of 80 columns in nothing worth a file")
    lines = DRAWINGS[name](PLACES[place])
    golden(f"{name}_{place}.txt", "".join(line.plain + "\n" for line in lines))


def colored(lines: Sequence[Text], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    file = io.StringIO()
    console, style = make_console(80, "always", file)
    assert style.heat
    emit(console, lines)
    return file.getvalue()


def test_colors(golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    style = Style(80, color=True, heat=True)
    lines = draw_findings(style, [made.BUG])
    lines += weights.draw_weights(style, [made.attention(queries=3)], made.tokens(made.PIECES[:3]), heads=[0])
    golden("colors.ansi", colored(lines, monkeypatch).replace("\x1b", "ESC"))


def test_json(golden: Callable[[str, str], None]) -> None:
    two = made.trace(made.forward_steps().steps[:2], [made.attention(heads=1, queries=2)])
    golden("trace.json", as_json.dumps(dataclasses.replace(two, findings=(made.BUG,))).replace(", {", ",\n{"))
