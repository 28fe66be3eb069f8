"""Lean blocks answer as global blocks do, to the digits of their bumps, and without contradiction among the answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.gram import lean
from mllkm_scale.gram.blocks import GlobalBlock
from mllkm_scale.gram.lean import LeanBlock
from mllkm_scale.kernels.grid import Family

N, ROWS, KERNELS = 60, 40, 14


@pytest.fixture(params=["gaussian", "exponential", "linear", "squared"])
def pair(request, monkeypatch):
    """A lean block that works on five kernels at a time, and the block that it stands for."""
    monkeypatch.setattr(lean, "KERNELS_AT_ONCE", 5)
    return blocks(request.param)


def blocks(map, seed=0):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(N, 6)).astype(np.float32)
    index = np.sort(rng.permutation(N)[:ROWS])
    signs = np.where(rng.random(ROWS) < 0.4, 1.0, -1.0)
    anchors, gammas = shared[:KERNELS].astype(np.float64), np.tile([0.02, 0.1], KERNELS // 2)
    kernels = Family(map, False, 0.5).kernels(anchors, gammas, rng.uniform(0.5, 2.0, KERNELS))
    return LeanBlock(kernels, shared, index, signs), GlobalBlock(kernels, shared[index].astype(np.float64), signs)


def weights_and_duals(seed=1):
    rng = np.random.default_rng(seed)
    weights = rng.random(KERNELS) * (rng.random(KERNELS) < 0.7)
    return weights, rng.random(ROWS)


def test_grams_moments_and_forms_are_those_of_a_global_block(pair):
    small, whole = pair
    weights, duals = weights_and_duals()
    U, expected = np.empty((ROWS, KERNELS)), np.empty((ROWS, KERNELS))
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(small.gram(weights), whole.gram(weights), **close)
    np.testing.assert_allclose(small.moments(duals, U), whole.moments(duals, expected), **close)
    np.testing.assert_allclose(U, expected, **close)
    np.testing.assert_allclose(small.forms(duals), whole.forms(duals), **close)
    assert small.n_kernels == whole.n_kernels


def test_what_a_lean_block_answers_is_about_the_same_kernels_in_double_precision(pair):
    block, _ = pair
    _, duals = weights_and_duals()
    U = np.empty((ROWS, KERNELS))
    q = block.moments(duals, U)
    np.testing.assert_array_equal(block.forms(duals), q)
    for m, one in enumerate(np.eye(KERNELS)):
        Q = block.gram(one)
        np.testing.assert_allclose(Q @ duals, U[:, m], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(duals @ Q @ duals, q[m], rtol=1e-11, atol=1e-11)
        assert np.linalg.eigvalsh(Q).min() > -1e-11


@given(st.integers(0, ROWS - 1), st.integers(0, ROWS), st.integers(0, 5))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_some_rows_of_some_columns_are_a_part_of_the_whole_gram(start, width, before):
    block, _ = blocks("gaussian")
    weights, _ = weights_and_duals()
    columns, rows = slice(start, min(start + width, ROWS)), slice(max(0, start - before), None)
    expected = block.gram(weights)[rows, columns]
    np.testing.assert_allclose(block.gram(weights, columns, rows), expected, rtol=1e-12, atol=1e-12)


def test_without_a_weight_the_gram_is_zero():
    block, _ = blocks("gaussian")
    assert not block.gram(np.zeros(KERNELS)).any()
