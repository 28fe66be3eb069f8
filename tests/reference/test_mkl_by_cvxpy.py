"""The reference itself: its optimum lies between the bounds that its own solution proves."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("name", ["iris", "breast_cancer"])
@pytest.mark.parametrize("componentwise", [False, True])
def test_the_reference_optimum_is_bracketed_by_its_own_solution(mkl_reference, small_problem, name, componentwise):
    X, signs = small_problem(name, 40)
    features = mkl_reference.grid_features(
        X[:, :6], [0.05, 0.5], map="gaussian", componentwise=componentwise, normalize="trace", local_bias=0.5
    )
    reference = mkl_reference.solve(features, signs, C=2.0)
    dual, primal = mkl_reference.bounds(features, signs, 2.0, reference.duals, reference.weights)
    assert dual <= primal
    np.testing.assert_allclose([dual, primal], reference.value, rtol=1e-6)


def test_one_linear_kernel_far_away_is_a_support_vector_machine_without_bias(mkl_reference, small_problem):
    """As gamma tends to 0 and the anchor is 0, the kernel is linear: LinearSVC solves the same problem."""
    from sklearn.svm import LinearSVC

    X, signs = small_problem("breast_cancer", 60)
    F = mkl_reference.kernel_features(X, np.zeros(X.shape[1]), 0.0, map="gaussian", componentwise=False)
    svc = LinearSVC(C=0.1, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=1_000_000, random_state=0)
    svc.fit(X, signs[:, 0])
    w = svc.coef_[0]
    primal = 0.5 * w @ w + 0.1 * np.maximum(0.0, 1.0 - signs[:, 0] * (X @ w)).sum()
    assert mkl_reference.solve([F], signs, C=0.1).value == pytest.approx(primal, rel=1e-7)
