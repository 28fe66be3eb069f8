"""The linear SVM by SDCA against LIBLINEAR, a convex solver, and its own certificate computed anew."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale.baselines.sdca import SDCAClassifier
from mllkm_scale.errors import ParameterError


def primal(machine, X, signs, C, k=0):
    hinge = np.maximum(0, 1 - signs * (X @ machine.coef_[k] + machine.intercept_[k]))
    return 0.5 * (machine.coef_[k] @ machine.coef_[k] + machine.intercept_[k] ** 2) + C * hinge.sum()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # labels of noise, features of scale 100
def test_all_of_scikit_learns_checks_pass():
    results = check_estimator(SDCAClassifier(), on_fail=None, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] != "passed"} <= {"check_array_api_input"}


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_optimum_is_that_of_liblinear(small_problem, fit_intercept):
    X, signs = small_problem("breast_cancer", 569)
    y, C = signs[:, 0], 0.1
    machine = SDCAClassifier(C, tol=1e-8, fit_intercept=fit_intercept).fit(X, y)
    reference = LinearSVC(
        C=C, loss="hinge", tol=1e-9, max_iter=100_000, fit_intercept=fit_intercept, random_state=0
    ).fit(X, y)
    np.testing.assert_allclose(machine.coef_, reference.coef_, atol=1e-5)
    np.testing.assert_allclose(machine.intercept_, reference.intercept_, atol=1e-5)


def test_the_optimum_is_that_of_a_convex_solver(small_problem):
    X, signs = small_problem("iris", 60)
    y, C = signs[:, 1], 5.0
    w, b = cp.Variable(4), cp.Variable()
    cost = 0.5 * (cp.sum_squares(w) + b**2) + C * cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    best = cp.Problem(cp.Minimize(cost)).solve(solver=cp.CLARABEL)
    machine = SDCAClassifier(C, tol=1e-7, max_iter=100_000).fit(X, y)
    assert primal(machine, X, y, C) == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(machine.coef_[0], w.value, atol=1e-3)


def test_the_gap_holds_for_weights_and_duals_as_they_are(small_problem):
    X, signs = small_problem("wine", 178)
    y, C = np.where(signs[:, 0] > 0, 3, np.where(signs[:, 1] > 0, 5, 7)), 0.5
    machine = SDCAClassifier(C, tol=1e-4).fit(X, y)
    assert machine.duals_.shape == (178, 3)
    assert machine.duals_.min() >= 0
    assert machine.duals_.max() <= C
    for k in range(3):
        w = (machine.duals_[:, k] * signs[:, k]) @ np.column_stack([X, np.ones(178)])
        np.testing.assert_allclose(w, np.append(machine.coef_[k], machine.intercept_[k]), atol=1e-12)
        P, D = primal(machine, X, signs[:, k], C, k), machine.duals_[:, k].sum() - 0.5 * w @ w
        assert 0 <= (P - D) / P <= 1e-4
        assert machine.gap_[k] == pytest.approx((P - D) / P, rel=1e-6, abs=1e-12)


def test_usps_has_the_test_error_of_liblinear(split_data):
    X, y, X_test, y_test = split_data("usps")
    machine = SDCAClassifier(C=0.1).fit(X, y)
    # LinearSVC(C=0.1, loss="hinge", tol=1e-3): 8.62 %
    assert 1 - machine.score(X_test, y_test) == pytest.approx(0.0862, abs=0.002)


def test_training_that_ends_too_early_warns(small_problem):
    X, signs = small_problem("breast_cancer", 100)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        machine = SDCAClassifier(C=100.0, max_iter=7).fit(X, signs[:, 0])
    assert machine.n_iter_.tolist() == [7]


def test_a_seed_gives_the_same_bits_and_none_another_order(small_problem):
    X, signs = small_problem("breast_cancer", 100)
    first, second, other = (SDCAClassifier(random_state=seed).fit(X, signs[:, 0]).coef_ for seed in (3, 3, None))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("wrong", [{"C": -1}, {"tol": 0}, {"max_iter": 0}, {"random_state": "x"}], ids=str)
def test_a_wrong_parameter_is_named(wrong):
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))}="):
        SDCAClassifier(**wrong).fit([[0.0], [1.0]], [0, 1])
