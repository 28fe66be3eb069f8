"""SDCA in blocks of samples takes the steps of Algorithm 1, one sample after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.kernels.grid import Family
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.local_blocks import LocalBlocks
from mllkm_scale.solver.sdca import epoch_orders, sdca_epoch


def problem(n, d, s, bias, seed, far=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + far
    signs = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    weights = rng.dirichlet(np.ones(s))
    kernels = Family("squared", local_bias=bias).kernels(
        X[rng.integers(0, n, s)], rng.uniform(0.02, 0.3, s), rng.uniform(0.5, 2.0, s)
    )
    return X, signs, weights, kernels


@given(st.integers(1, 90), st.integers(1, 6), st.integers(1, 5), st.sampled_from([0.0, 0.6]), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_epochs_are_those_of_algorithm_1_on_the_combined_gram(n, d, s, bias, seed):
    X, signs, weights, kernels = problem(n, d, s, bias, seed)
    gram = kernels.combined_gram(weights, X, X)
    gram[np.diag_indices(n)] = np.maximum(np.diagonal(gram), 1e-9)  # so that rounding does not decide
    box = Box(0.7, np.random.default_rng(seed + 1).choice([0.1, 1.0, 3.0], n))
    start = np.clip(np.random.default_rng(seed).uniform(-0.5, 1.5, n), 0.0, box.upper)
    expected, outputs = start.copy(), gram @ (start * signs)
    blocks = LocalBlocks(kernels, weights, X, signs, box, start.copy(), np.float64)
    for order in epoch_orders(n, 3, seed):
        sdca_epoch(gram, signs, box.upper, order, expected, outputs)
        blocks.epoch(order)
    reached = np.diagonal(gram) > 1e-6
    np.testing.assert_allclose(blocks.duals[reached], expected[reached], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_margins_are_those_of_the_combined_gram_also_far_from_the_origin(dtype, far):
    X, signs, weights, kernels = problem(300, 5, 7, 0.4, 1, far)
    duals = np.random.default_rng(2).random(300)
    blocks = LocalBlocks(kernels, weights, X, signs, 1.0, duals.copy(), dtype)
    near = problem(300, 5, 7, 0.4, 1)
    expected = signs * (near[3].combined_gram(weights, near[0], near[0]) @ (duals * signs))
    rtol = 1e-9 if dtype == np.float64 else 1e-5
    scale = np.abs(expected).max()
    np.testing.assert_allclose(blocks.margins(), expected, rtol=rtol, atol=(rtol + far * 1e-11) * scale)
    blocks.epoch(np.arange(300))
    fresh = LocalBlocks(kernels, weights, X, signs, 1.0, blocks.duals.copy(), dtype)
    np.testing.assert_allclose(blocks.margins(), fresh.margins(), rtol=rtol, atol=rtol * scale)
