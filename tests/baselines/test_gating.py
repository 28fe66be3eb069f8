"""Gates, the localized Gram and its gradient against their formulas, kernel by kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from mllkm_scale.baselines.lmkl import gates, gating_gradient, localized_gram


def kernels_of(X: np.ndarray) -> list[np.ndarray]:
    """Two linear kernels and a polynomial one between them."""
    linear = X @ X.T
    return [linear, (linear + 1.0) ** 2 / 10, linear]


def parts_of(X: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    linear, polynomial, _ = kernels_of(X)
    return [(linear, np.array([0, 2])), (polynomial, np.array([1]))]


def gram_of(X: np.ndarray, gating: np.ndarray) -> np.ndarray:
    """K_eta by its definition."""
    scores = np.exp(X @ gating[:, :-1].T + gating[:, -1])
    shares = scores / scores.sum(axis=1, keepdims=True)
    return sum(np.outer(shares[:, m], shares[:, m]) * kernel for m, kernel in enumerate(kernels_of(X)))


def solved(X: np.ndarray, signs: np.ndarray, gating: np.ndarray) -> tuple[float, np.ndarray]:
    """J and the signed duals, to high precision."""
    gram = gram_of(X, gating)
    svm = SVC(kernel="precomputed", C=0.5, tol=1e-10).fit(gram, signs)
    duals = np.zeros(len(X))
    duals[svm.support_] = svm.dual_coef_[0]
    return float(np.abs(duals).sum() - 0.5 * duals @ gram @ duals), duals


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e4]))
@settings(max_examples=20)
def test_gates_are_shares_that_a_common_shift_does_not_change(seed, scale):
    rng = np.random.default_rng(seed)
    X, gating = rng.normal(size=(7, 3)), scale * rng.normal(size=(4, 4))
    shares = gates(X, gating)
    assert shares.min() >= 0.0
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(gates(X, gating + scale * rng.normal(size=4)), shares, atol=1e-8)


def test_the_localized_gram_is_the_sum_over_the_kernels(small_problem):
    X, _ = small_problem("iris", 40)
    gating = np.random.default_rng(0).normal(size=(3, 5))
    np.testing.assert_allclose(
        localized_gram(parts_of(X), gates(X, gating)), gram_of(X, gating), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("name", ["breast_cancer", "heart"])
def test_the_gradient_is_that_of_finite_differences(small_problem, name):
    X, signs = small_problem(name, 80)
    X = X[:, :4]
    gating = 0.5 * np.random.default_rng(1).normal(size=(3, 5))
    _, duals = solved(X, signs[:, 0], gating)
    gradient = gating_gradient(X, parts_of(X), gates(X, gating), duals)
    differences = np.empty_like(gating)
    for place in np.ndindex(*gating.shape):
        change = np.zeros_like(gating)
        change[place] = 1e-4
        above, below = (solved(X, signs[:, 0], gating + sign * change)[0] for sign in (1, -1))
        differences[place] = (above - below) / 2e-4
    np.testing.assert_allclose(gradient, differences, rtol=1e-4, atol=1e-5 * np.abs(gradient).max())


def test_equal_gates_of_equal_kernels_are_a_saddle_point(small_problem):
    X, signs = small_problem("breast_cancer", 60)
    shares = np.full((60, 3), 1 / 3)
    gradient = gating_gradient(X, [(X @ X.T, np.arange(3))], shares, signs[:, 0])
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)
