"""Blocks with bumps in single precision are blocks of kernels that differ by seven digits, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.gram.blocks import GlobalBlock
from mllkm_scale.kernels.grid import Family

ROWS, KERNELS = 40, 14


@pytest.fixture(params=["gaussian", "exponential", "linear", "squared"])
def pair(request):
    """A block with bumps and rows in single precision, and the block that it stands for."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 6)).astype(np.float32)
    signs = np.where(rng.random(ROWS) < 0.4, 1.0, -1.0)
    anchors, gammas = X[:KERNELS].astype(np.float64), np.tile([0.02, 0.1], KERNELS // 2)
    kernels = Family(request.param, False, 0.5).kernels(anchors, gammas, rng.uniform(0.5, 2.0, KERNELS))
    return GlobalBlock(kernels, X, signs, np.float32), GlobalBlock(kernels, X.astype(np.float64), signs)


@pytest.fixture
def duals():
    return np.random.default_rng(1).random(ROWS)


def test_answers_are_those_of_double_precision_to_the_digits_of_the_bumps(pair, duals):
    small, whole = pair
    weights = np.random.default_rng(2).random(KERNELS)
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(small.gram(weights), whole.gram(weights), **close)
    np.testing.assert_allclose(small.vectors(duals), whole.vectors(duals), **close)
    np.testing.assert_allclose(small.forms(duals), whole.forms(duals), **close)
    V = whole.vectors(duals)
    np.testing.assert_allclose(small.responses(V), whole.responses(V), **close)
    np.testing.assert_allclose(small.columns(V), whole.columns(V), **close)


def test_answers_are_about_the_same_kernels_in_double_precision(pair, duals):
    block, _ = pair
    U = block.columns(block.vectors(duals))
    for m, one in enumerate(np.eye(KERNELS)):
        Q = block.gram(one)
        np.testing.assert_allclose(Q @ duals, U[:, m], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(duals @ Q @ duals, block.forms(duals)[m], rtol=1e-11, atol=1e-11)
        assert np.linalg.eigvalsh(Q).min() > -1e-11


def test_without_a_weight_the_gram_is_zero(pair):
    assert not pair[0].gram(np.zeros(KERNELS)).any()
