"""Blocks of the restricted problem against brute-force Grams: Q(beta), U and q."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.gram.blocks import FeatureBlock, GlobalBlock, MatrixBlock, make_block

ACTIVE = np.array([5, 100, 3, 266, 41, 180])
WEIGHTS = np.array([0.1, 0.0, 0.3, 0.2, 0.25, 0.15])
EXACT = {"rtol": 1e-7, "atol": 1e-7}


@pytest.fixture
def restricted(problem):
    """Kernels, thirty rows, signs, duals, and the Grams of the kernels on these rows."""
    kernels = problem.grid.take(ACTIVE)
    X = problem.X[:30].astype(np.float64)
    signs = np.where(np.arange(30) % 3 == 0, 1.0, -1.0)
    duals = np.random.default_rng(0).uniform(size=30)
    features = kernels.features(X)
    return kernels, X, signs, duals, [features[:, m] @ features[:, m].T for m in range(6)]


@pytest.fixture(params=["made", "features", "matrices"])
def block(request, restricted):
    kernels, X, signs, _, grams = restricted
    if request.param == "features":
        return FeatureBlock(kernels.features(X), signs)
    if request.param == "matrices":
        return MatrixBlock(grams, signs)
    return make_block(kernels, X, signs)


def test_the_block_suits_the_family(restricted, family):
    kernels, X, signs, _, _ = restricted
    assert isinstance(make_block(kernels, X, signs), FeatureBlock if family.componentwise else GlobalBlock)


def test_the_combined_gram_is_the_signed_weighted_sum(block, restricted):
    _, _, signs, _, grams = restricted
    expected = np.outer(signs, signs) * sum(b * K for b, K in zip(WEIGHTS, grams, strict=True))
    np.testing.assert_allclose(block.gram(WEIGHTS), expected, **EXACT)


def test_rows_and_columns_of_the_gram_can_be_had_alone(block):
    Q = block.gram(WEIGHTS)
    panel = block.panels(WEIGHTS)
    np.testing.assert_allclose(panel(slice(4, 11), slice(8, None)), Q[8:, 4:11], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(panel(slice(4, 11), slice(None)), Q[:, 4:11], rtol=1e-12, atol=1e-12)
    single = block.panels(WEIGHTS, np.float32)(slice(4, 11), slice(8, None))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, Q[8:, 4:11], rtol=1e-4, atol=1e-4)


def test_vectors_give_the_gradients_and_the_quadratic_forms(block, restricted):
    _, _, signs, duals, grams = restricted
    V = block.vectors(duals)
    expected = np.stack([signs * (K @ (duals * signs)) for K in grams], axis=1)
    np.testing.assert_allclose(block.columns(V), expected, **EXACT)
    np.testing.assert_allclose(block.forms(duals), duals @ expected, **EXACT)
    other = np.random.default_rng(1).uniform(size=len(duals))
    np.testing.assert_allclose(block.inner(block.vectors(other), V), other @ expected, **EXACT)


def test_the_gram_times_a_vector_goes_without_the_gram(block, restricted):
    _, _, _, duals, _ = restricted
    through = block.responses(block.vectors(duals) * WEIGHTS[:, None])
    np.testing.assert_allclose(through, block.gram(WEIGHTS) @ duals, rtol=1e-9, atol=1e-9)


def test_parts_of_the_samples_add_up(block, restricted):
    _, _, _, duals, _ = restricted
    V, parts = block.vectors(duals), [slice(0, 13), slice(13, 30)]
    np.testing.assert_allclose(sum(block.vectors(duals, part) for part in parts), V, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.concatenate([block.responses(V, part) for part in parts]), block.responses(V))
    np.testing.assert_allclose(np.concatenate([block.columns(V, part) for part in parts]), block.columns(V))


def test_the_gram_keeps_no_memory_of_earlier_weights(block):
    before = block.gram(WEIGHTS)
    block.gram(np.full(6, 1.0))
    np.testing.assert_array_equal(block.gram(WEIGHTS), before)
