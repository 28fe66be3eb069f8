"""The locally linear SVM against a solver of the same problem, a linear SVM, and the paper's figure on USPS."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale.baselines.llsvm import LLSVMClassifier, coordinates, nearest_anchors, sgd_epoch
from mllkm_scale.errors import ParameterError

SKIPPED = {"check_array_api_input"}  # asks for the environment variable SCIPY_ARRAY_API


def expanded(machine: LLSVMClassifier, X: np.ndarray) -> np.ndarray:
    """gamma(x) (x) [x, 1], (n, m (d + 1))."""
    chosen, squares = nearest_anchors(X, machine.anchors_, min(machine.n_nearest, len(machine.anchors_)))
    codes = np.zeros((len(X), len(machine.anchors_)))
    np.put_along_axis(codes, chosen, coordinates(squares, machine.coding, machine.bandwidth_), axis=1)
    affine = np.hstack([X, np.ones((len(X), 1))])
    return np.einsum("nv,nl->nvl", codes, affine).reshape(len(X), -1)


def objective(w: np.ndarray, features: np.ndarray, signs: np.ndarray, C: float) -> float:
    return float(0.5 * w @ w + C * np.maximum(0.0, 1.0 - signs * (features @ w)).sum())


def weights_of(machine: LLSVMClassifier, k: int) -> np.ndarray:
    return np.hstack([machine.coef_[:, k], machine.intercept_[:, [k]]]).ravel()


def test_all_of_scikit_learns_checks_pass():
    results = check_estimator(LLSVMClassifier(), on_fail=None, on_skip=None)
    status = {result["check_name"]: result["status"] for result in results}
    assert {name for name, found in status.items() if found == "failed"} == set()
    assert {name for name, found in status.items() if found != "passed"} <= SKIPPED


def test_an_epoch_is_the_textbook_one():
    """W <- (1 - eta lambda) W + eta y gamma (x) x on a violation, and the mean of the W; every class by itself."""
    rng = np.random.default_rng(0)
    X, codes, signs = rng.normal(size=(60, 4)), rng.dirichlet(np.ones(2), 60), rng.choice([-1.0, 1.0], (60, 3))
    chosen = np.stack([rng.permutation(5)[:2] for _ in range(60)])
    regularization, start, order = 0.05, 30.0, rng.permutation(60)
    W, total = np.zeros((5, 3, 4)), np.zeros((5, 3, 4))
    for t, i in enumerate(order, start=1):
        gamma = np.zeros(5)
        gamma[chosen[i]] = codes[i]
        eta = 1 / (regularization * (start + t))
        violating = signs[i] * np.einsum("v,vkl,l->k", gamma, W, X[i]) < 1
        W = (1 - eta * regularization) * W + eta * np.einsum("v,k,l->vkl", gamma, violating * signs[i], X[i])
        total += W
    clock, sums, earlier = np.zeros(3), np.zeros_like(W), np.zeros_like(W)
    sgd_epoch(X, signs, chosen, codes, order, regularization, start, True, clock, sums, earlier)
    np.testing.assert_allclose(sums / (regularization * (start + clock[0])), W, atol=1e-12)
    np.testing.assert_allclose((clock[2] * sums - earlier) / clock[1], total / 60, atol=1e-12)
    sgd_epoch(X, signs, chosen, codes, order, regularization, start, False, clock, sums, earlier)
    assert clock[0] == 120
    assert clock[1] == 60


@pytest.mark.parametrize("coding", ["inverse_distance", "kernel_codebook"])
@pytest.mark.parametrize(("name", "K"), [("breast_cancer", 1), ("wine", 3)])
def test_the_objective_comes_near_the_optimum_of_liblinear(small_problem, coding, name, K):
    X, signs = small_problem(name, 200)
    machine = LLSVMClassifier(n_anchors=6, n_nearest=3, coding=coding, C=0.1, n_epochs=300)
    machine.fit(X, signs[:, 0] if K == 1 else signs.argmax(axis=1))
    features = expanded(machine, X)
    for k in range(K):
        best = LinearSVC(loss="hinge", C=0.1, fit_intercept=False, tol=1e-6, max_iter=200_000)
        best.fit(features, signs[:, k])
        optimum = objective(best.coef_[0], features, signs[:, k], 0.1)
        reached = objective(weights_of(machine, k), features, signs[:, k], 0.1)
        assert optimum * (1 - 1e-6) <= reached <= optimum * 1.01


def test_scores_are_the_product_with_the_expanded_features(real_data):
    X, y = real_data("wine")
    machine = LLSVMClassifier(n_anchors=10, n_nearest=4, n_epochs=2).fit(X, y)
    expected = expanded(machine, X) @ np.stack([weights_of(machine, k) for k in range(3)], axis=1)
    np.testing.assert_allclose(machine.decision_function(X), expected, rtol=1e-9, atol=1e-9)


def test_one_anchor_is_a_linear_svm(small_problem):
    X, signs = small_problem("breast_cancer", 300)
    machine = LLSVMClassifier(n_anchors=1, C=0.1, n_epochs=500).fit(X, signs[:, 0])
    linear = LinearSVC(loss="hinge", C=0.1, tol=1e-6, max_iter=200_000).fit(X, signs[:, 0])
    np.testing.assert_allclose(machine.decision_function(X), linear.decision_function(X), rtol=0.01, atol=0.03)
    np.testing.assert_array_equal(machine.predict(X), linear.predict(X))


@pytest.mark.parametrize("coding", ["inverse_distance", "kernel_codebook"])
def test_usps_error_is_near_the_papers(split_data, coding):
    """Ladicky and Torr: 5.78 % with 100 anchors and the 8 nearest; here 5.7 to 6.2 % over three seeds."""
    X, y, X_test, y_test = split_data("usps")
    machine = LLSVMClassifier(coding=coding).fit(X, y)
    assert 100 * np.mean(machine.predict(X_test) != y_test) < 6.5


def test_the_same_seed_gives_the_same_bits(real_data):
    X, y = real_data("wine")
    first, again, other = (LLSVMClassifier(n_anchors=12, random_state=seed).fit(X, y) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.decision_function(X), again.decision_function(X))
    assert not np.array_equal(first.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_anchors": 0},
        {"n_nearest": 0},
        {"coding": "vector"},
        {"bandwidth": "wide"},
        {"bandwidth": -1.0},
        {"C": 0.0},
        {"n_epochs": 0},
        {"random_state": -1},
    ],
)
def test_a_parameter_that_cannot_work_is_named(real_data, wrong):
    X, y = real_data("iris")
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        LLSVMClassifier(**wrong).fit(X, y)
