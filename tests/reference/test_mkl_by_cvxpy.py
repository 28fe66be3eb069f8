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
    assert dual <= reference.value * (1 + 1e-8)
    assert dual == pytest.approx(reference.value, rel=1e-7)
    assert reference.value <= primal * (1 + 1e-8)
    assert primal == pytest.approx(reference.value, rel=1e-5)


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


@pytest.mark.parametrize("map", ["exponential", "gaussian", "linear", "squared"])
@pytest.mark.parametrize("componentwise", [False, True])
def test_reference_features_are_those_of_scalar_formulas(mkl_reference, map, componentwise):
    from math import exp, sqrt

    h = {
        "exponential": lambda t: exp(-0.4 * t),
        "gaussian": lambda t: exp(-0.4 * t * t),
        "linear": lambda t: max(0.0, 1 - 0.4 * t),
        "squared": lambda t: max(0.0, 1 - 0.4 * t * t),
    }[map]
    x, c = [0.5, -2.0, 1.0], [0.0, 1.0, 0.8]
    offsets = [a - b for a, b in zip(x, c, strict=True)]
    if componentwise:
        each = [h(abs(t)) for t in offsets]
        constant = sum(each) / 3
    else:
        each = [h(sqrt(sum(t * t for t in offsets)))] * 3
        constant = each[0]
    expected = [a * t for a, t in zip(each, offsets, strict=True)] + [sqrt(2.0) * constant]
    F = mkl_reference.kernel_features(
        np.array([x]), np.array(c), 0.4, map=map, componentwise=componentwise, local_bias=2.0
    )
    np.testing.assert_allclose(F[0], expected, rtol=1e-14)


def test_the_certified_gap_is_zero_at_the_optimum_and_one_without_duals(mkl_reference, small_problem):
    X, signs = small_problem("iris", 30)
    grid = (X[:, :3], signs, "squared", False, [0.1, 0.4], "trace", 0.5, 1.0)
    features = mkl_reference.grid_features(
        X[:, :3], [0.1, 0.4], map="squared", componentwise=False, normalize="trace", local_bias=0.5
    )
    best = mkl_reference.solve(features, signs, 1.0)
    active = np.flatnonzero(best.weights > 1e-9)
    gap = mkl_reference.certified_gap(*grid, duals=best.duals, active=active, weights=best.weights[active])
    assert 0 <= gap < 1e-4
    assert best.value == pytest.approx(mkl_reference.optimum(*grid), rel=1e-9)
    nothing = mkl_reference.certified_gap(
        *grid, duals=np.zeros_like(signs), active=active, weights=best.weights[active]
    )
    assert nothing == 1.0
