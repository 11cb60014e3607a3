"""Masks and weights read back from their pictures."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from rich.color import Color
from rich.style import Style as RichStyle
from rich.text import Text

from attnscope.pooling import pool
from attnscope.render import heat
from attnscope.render.mask import draw_attention_masks, draw_mask, grid, wrap_code
from attnscope.render.terminal import Style
from attnscope.render.weights import draw_weights
from attnscope.schema import MaskOrigin
from tests.render import made

RNG = np.random.default_rng(0)


def body(lines: list[Text], label: int) -> list[str]:
    """The picture's rows without the margin and the two lines of the key axis."""
    return [line.plain[2 + 5 + 1 + label + 2 :] for line in lines[2:]]


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (2, 6), (6, 30), (11, 35)])
def test_a_small_mask_reads_back(shape: tuple[int, int], unicode: bool) -> None:
    allowed = RNG.random(shape) < 0.5
    on = "■" if unicode else "#"
    rows = body(grid(Style(100, unicode=unicode), allowed), len(str(shape[0] - 1)))
    got = [[cell == on for cell in row.split()] for row in rows]
    np.testing.assert_array_equal(got, allowed)


@pytest.mark.parametrize("shape", [(60, 60), (61, 50), (3, 60)])
def test_half_blocks_read_back(shape: tuple[int, int]) -> None:
    allowed = RNG.random(shape) < 0.5
    rows = body(grid(Style(80), allowed), len(str(shape[0] - 1)))[:-1]
    upper = [[cell in "█▀" for cell in row[:-1]] for row in rows]
    lower = [[cell in "█▄" for cell in row[:-1]] for row in rows]
    got = np.stack([upper, lower], 1).reshape(-1, shape[1])[: shape[0]]
    np.testing.assert_array_equal(got, allowed)


def test_the_counts_are_exact() -> None:
    assert draw_mask(Style(80), made.mask(8))[0].plain == "mask  causal, 8 queries × 8 keys, 36 of 64 allowed"
    assert "11 of 12 allowed" in draw_mask(Style(80), made.mask(2, 6))[0].plain


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("length", [4095, 4096])
def test_a_large_mask_is_a_usable_picture(length: int, width: int) -> None:
    lines = draw_mask(Style(width), made.mask(length))
    text = "\n".join(line.plain for line in lines)
    cells = (length + 1) // (64 if width == 160 else 128 if width == 80 else 512)
    picture = [line.plain for line in lines if "█" in line.plain or "▒" in line.plain][:cells]
    assert f"one cell is {4096 // cells} queries" in " ".join(text.split())
    assert len(lines) < 90
    # The diagonal: each row has one more cell than the one above it that is allowed at least in part.
    assert [sum(row.count(char) for char in "░▒▓█") // 2 for row in picture] == list(range(1, cells + 1))


def test_pooled_ends_are_kept_for_whole_blocks() -> None:
    allowed = np.ones((256, 256), bool)
    allowed[0, 255] = False
    rows = body(grid(Style(80), allowed), 3)
    assert rows[0].count("█") == 2 * 31
    assert rows[0].endswith("▓▓")
    assert rows[1] == "█" * 64


def test_equal_masks_are_drawn_once() -> None:
    layers = [made.attention(f"h.{n}.attn") for n in range(4)]
    lines = [line.plain for line in draw_attention_masks(Style(100), layers)]
    assert sum(line.strip() == "key" for line in lines) == 1
    assert lines[0].endswith("the same in layers 0–3")


def test_different_masks_are_drawn_apart() -> None:
    layers = [made.attention(f"h.{n}.attn") for n in range(4)]
    window = np.tril(np.ones((1, 6, 6), bool)) & ~np.tril(np.ones((1, 6, 6), bool), -2)
    for number in (1, 3):
        layers[number] = dataclasses.replace(layers[number], mask=window)
    lines = [line.plain for line in draw_attention_masks(Style(80), layers)]
    assert lines[0] == "mask  2 different ones"
    assert [line.strip() for line in lines if line.strip().startswith("layers")] == [
        "layers 0, 2",
        "layers 1, 3",
    ]
    only = [line.plain for line in draw_attention_masks(Style(80), layers, [1])]
    assert only[0].startswith("mask  11 of 36 allowed")


def test_no_mask_is_said_and_not_drawn() -> None:
    one = dataclasses.replace(made.attention(), mask=np.ones((1, 6, 6), bool), mask_origin=MaskOrigin("none"))
    assert [line.plain for line in draw_attention_masks(Style(80), [one])] == [
        "mask  none: each of 6 queries may attend to all 6 keys"
    ]


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (MaskOrigin("buffer", "mask", "m.py", 3), "buffer mask, line 3 of m.py"),
        (MaskOrigin("argument", "attn_mask"), "argument attn_mask"),
        (MaskOrigin("is_causal", None, "m.py", 3), "is_causal=True, line 3 of m.py"),
        (MaskOrigin("made", None, "m.py", 3), "made at line 3 of m.py"),
    ],
)
def test_where_a_mask_came_from(origin: MaskOrigin, said: str) -> None:
    one = dataclasses.replace(made.attention(), mask_origin=origin)
    assert draw_attention_masks(Style(80), [one])[0].plain == f"mask  21 of 36 allowed, {said}"


@pytest.mark.parametrize("width", range(24, 90, 7))
def test_code_is_never_broken_inside_a_token(width: int) -> None:
    code = made.mask(4096).torch_lines["additive"]
    parts = wrap_code(code, width)
    assert "".join(part.strip() for part in parts).replace(" ", "") == code.replace(" ", "")
    for part in parts[:-1]:
        assert part[-1] in ",(&|[" or part.endswith(" ") or not part[-1].isalnum()


def numbers(lines: list[Text]) -> list[list[str]]:
    """The cells of each row of a table without token labels."""
    return [line.plain.split()[1:] for line in lines if line.plain[:3].strip().isdigit()]


def test_every_weight_is_in_the_table() -> None:
    one = made.attention(heads=1, queries=8)
    assert one.weights is not None
    rows = numbers(draw_weights(Style(80), [one], precision=3))[-8:]
    for query, row in enumerate(rows):
        assert row[query + 1 :] == ["·"] * (7 - query)
        assert row[: query + 1] == [f"{value:.3f}" for value in one.weights[0, 0, query, : query + 1]]


def test_zero_is_not_blocked_and_weight_on_blocked_keys_is_shown() -> None:
    one = made.attention(heads=1, queries=3)
    weights = np.array([[[[0.9, 0.1, 0], [0, 1, 0], [0.5, 0, 0.5]]]], np.float32)
    rows = numbers(draw_weights(Style(80), [dataclasses.replace(one, weights=weights)]))[-3:]
    assert rows == [["0.90", "0.10", "·"], ["0.00", "1.00", "·"], ["0.50", "0.00", "0.50"]]


def test_nan_rows_stand_out() -> None:
    one = made.attention(heads=1, queries=3)
    weights = np.array([[[[1, 0, 0], [np.nan] * 3, [0, 1, 0]]]], np.float32)
    lines = draw_weights(Style(80), [dataclasses.replace(one, weights=weights)])
    assert numbers(lines)[-2] == ["nan", "nan", "nan"]
    assert lines[-1].plain == "  head 0: nan in query 1"


def test_heads_and_layers_are_picked() -> None:
    layers = [made.attention(f"h.{n}", heads=3, queries=4, seed=n) for n in range(3)]
    lines = [line.plain for line in draw_weights(Style(80), layers, heads=[2], layers=[1])]
    assert [line.split("  ")[1] for line in lines if "head " in line] == ["layer 1 · head 2"]


def test_heads_stand_side_by_side_where_they_fit() -> None:
    two = made.attention(queries=4)
    wide = [line.plain for line in draw_weights(Style(100), [two])]
    assert any("head 0" in line and "head 1" in line for line in wide)
    narrow = [line.plain for line in draw_weights(Style(40), [two])]
    assert not any("head 0" in line and "head 1" in line for line in narrow)


def test_pooled_weights_alone_are_drawn() -> None:
    whole = made.attention(heads=1, queries=256)
    assert whole.weights is not None
    pooled = dataclasses.replace(whole, weights=None, pooled=pool(whole.weights, 8, 8, 4))
    style = Style(80)
    assert [line.plain for line in draw_weights(style, [pooled])] == [
        line.plain for line in draw_weights(style, [whole])
    ]


def test_what_was_not_kept_is_not_drawn() -> None:
    gone = dataclasses.replace(made.attention(), weights=None)
    assert draw_weights(Style(80), [gone])[-1].plain == "  layer 0: the weights were not kept"


def test_weights_pooled_by_one_are_the_weights() -> None:
    whole = made.attention()
    assert whole.weights is not None
    pooled = dataclasses.replace(whole, weights=None, pooled=pool(whole.weights, 1, 1, 2))
    expected = [line.plain for line in draw_weights(Style(80), [whole])]
    assert [line.plain for line in draw_weights(Style(80), [pooled])] == expected


@pytest.mark.parametrize("precision", [0, 1, 8])
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (2, 3000), (3000, 2), (30, 6)])
@pytest.mark.parametrize("width", [40, 80, 160])
def test_any_shape_and_precision_keeps_the_width(shape: tuple[int, int], precision: int, width: int) -> None:
    weights = np.full((1, 1, *shape), 1 / shape[1], np.float32)
    one = dataclasses.replace(
        made.attention(heads=1), shape=(1, 1, *shape), weights=weights, mask=np.ones((1, *shape), bool)
    )
    for style in (Style(width), Style(width, color=True, heat=True), Style(width, unicode=False)):
        lines = draw_weights(style, [one], precision=precision) + draw_attention_masks(style, [one])
        assert max(line.cell_len for line in lines) <= width
        assert len(lines) < 130


def test_the_batch_entry_is_said() -> None:
    batch = made.attention(batch=3)
    assert draw_weights(Style(80), [batch])[0].plain.endswith("batch entry 0 of 3")
    assert batch.weights is not None
    rows = numbers(draw_weights(Style(80), [batch], heads=[0], batch=2))[-6:]
    assert rows[5] == [f"{value:.2f}" for value in batch.weights[2, 0, 5]]


def test_shades_are_those_of_the_legend() -> None:
    for style in (Style(80), Style(80, unicode=False)):
        for char, bound in heat.shade_bounds(style):
            assert heat.shade(style, bound + 1e-6) == char
        assert heat.shade(style, 1.0) == heat.shade_bounds(style)[-1][0]
        assert heat.shade(style, float("nan")) == "!"


def luminance(color: Color) -> float:
    parts = [part / 255 for part in color.get_truecolor()]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("truecolor", [True, False])
def test_numbers_over_heat_can_be_read_and_more_is_brighter(truecolor: bool) -> None:
    style = Style(80, color=True, heat=True, truecolor=truecolor)
    last = -1.0
    for level in range(heat.LEVELS):
        look = RichStyle.parse(heat.cell_style(style, (level / (heat.LEVELS - 1)) ** 2))
        assert look.color is not None
        assert look.bgcolor is not None
        light, dark = sorted((luminance(look.color), luminance(look.bgcolor)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5
        assert luminance(look.bgcolor) >= last
        last = luminance(look.bgcolor)


def test_named_colors_can_be_read_on_black_and_on_white() -> None:
    for name in (
        "axis.B",
        "axis.T",
        "axis.S",
        "axis.C",
        "axis.H",
        "axis.G",
        "axis.D",
        "error",
        "warning",
        "dim",
    ):
        color = RichStyle.parse(Style(color=True)(name)).color
        assert color is not None
        assert (luminance(color) + 0.05) / 0.05 >= 3
        assert 1.05 / (luminance(color) + 0.05) >= 3
