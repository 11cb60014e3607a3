"""Pooling against the definition written out as loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.pooling import pool, pool_blocks, pool_size, top_keys
from tests.render.made import causal_weights


def by_loops(matrix: np.ndarray, rows: int, cols: int) -> np.ndarray:
    queries, keys = matrix.shape
    out = np.zeros((-(-queries // rows), -(-keys // cols)))
    for row in range(out.shape[0]):
        for col in range(out.shape[1]):
            block = matrix[row * rows : (row + 1) * rows, col * cols : (col + 1) * cols].astype(np.float64)
            out[row, col] = block.sum() / block.shape[0]
    return out


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_blocks_are_those_of_the_definition(queries: int, keys: int, rows: int, cols: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).random((queries, keys)).astype(np.float32)
    np.testing.assert_allclose(pool_blocks(matrix, rows, cols), by_loops(matrix, rows, cols), rtol=1e-6)


def test_rows_still_sum_to_one() -> None:
    pooled = pool(causal_weights(2, 3, 101), 8, 16, 4)
    assert pooled.weights.shape == (2, 3, 13, 7)
    assert pooled.factor == (8, 16)
    np.testing.assert_allclose(pooled.weights.sum(-1), 1, atol=1e-5)


def test_a_diagonal_keeps_its_peak() -> None:
    assert (np.diagonal(pool_blocks(np.eye(64, dtype=np.float32), 8, 8)) == 1).all()


def test_half_precision_is_summed_in_single() -> None:
    ones = np.full((4, 4096), 1 / 4096, np.float16)
    np.testing.assert_allclose(pool_blocks(ones, 4, 4096), [[1.0]], atol=1e-3)


def test_nan_stays_nan_and_stays_in_its_row() -> None:
    weights = causal_weights(1, 1, 8)
    weights[0, 0, 5] = np.nan
    pooled = pool(weights, 2, 2, 2)
    assert np.isnan(pooled.weights[0, 0, 2]).all()
    assert np.isfinite(np.delete(pooled.weights[0, 0], 2, axis=0)).all()
    assert np.isnan(pooled.top_weights[0, 0, 5]).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 9), st.integers(0, 99))
def test_top_keys_are_those_of_a_stable_sort(queries: int, keys: int, top: int, seed: int) -> None:
    # Few different values: ties are the hard part.
    matrix = np.random.default_rng(seed).integers(0, 3, (queries, keys)).astype(np.float32)
    index, weight = top_keys(matrix, top)
    expected = np.argsort(-matrix, axis=1, kind="stable")[:, :top]
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_array_equal(weight, np.take_along_axis(matrix, expected, 1))


def test_top_keys_are_different_keys_even_of_nan() -> None:
    index, weight = top_keys(np.full((2, 4), np.nan, np.float32), 3)
    assert all(len(set(row)) == 3 for row in index.tolist())
    assert np.isnan(weight).all()


@pytest.mark.parametrize(
    ("length", "cells", "factor"), [(1, 1, 1), (64, 64, 1), (65, 64, 2), (4096, 32, 128), (5, 1, 8)]
)
def test_pool_size(length: int, cells: int, factor: int) -> None:
    assert pool_size(length, cells) == factor


@pytest.mark.parametrize(("shape", "rows", "cols"), [((3, 4, 4), 1, 1), ((1, 1, 4, 4), 0, 1)])
def test_what_cannot_be_pooled_raises(shape: tuple[int, ...], rows: int, cols: int) -> None:
    with pytest.raises(ValueError, match=r"must be|hold nothing"):
        pool(np.zeros(shape, np.float32), rows, cols, 1)
