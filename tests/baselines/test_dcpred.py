"""DC-Pred++ against scikit-learn's SVC, its landmarks against brute force, and the figure known for USPS."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale.baselines.dcpred import DCPredClassifier, Expansion, fitted_expansion, weighted_centres
from mllkm_scale.errors import ParameterError

CHECKS = 55  # of scikit-learn 1.9; none is excepted
SKIPPED = {"check_array_api_input"}  # asks for the environment variable SCIPY_ARRAY_API
ALL = 10**6  # more landmarks than there are support vectors


def one_cluster_error(X: np.ndarray, signs: np.ndarray, **settings: object) -> float:
    """Root mean square difference to SVC's decision function on every second row, learned on the others."""
    learn, test = slice(None, None, 2), slice(1, None, 2)
    y = signs[:, 0]
    exact = SVC(C=10.0, gamma=settings["gamma"]).fit(X[learn], y[learn]).decision_function(X[test])
    machine = DCPredClassifier(n_clusters=1, **settings).fit(X[learn], y[learn])
    return float(np.sqrt(np.mean((machine.decision_function(X[test]) - exact) ** 2)))


@pytest.mark.parametrize("pseudo_scales", [(), (0.5, 1.5)])
def test_all_support_vectors_of_one_cluster_are_the_svm_itself(small_problem, pseudo_scales):
    X, signs = small_problem("breast_cancer", 500)
    settings = {"n_landmarks": ALL, "gamma": 0.03, "pseudo_scales": pseudo_scales}
    assert one_cluster_error(X, signs, **settings) < 1e-4


def test_all_support_vectors_of_many_clusters_are_their_svms(small_problem):
    X, signs = small_problem("digits", 900)
    y = signs.argmax(axis=1)
    machine = DCPredClassifier(n_clusters=4, n_landmarks=ALL, gamma=0.02).fit(X, y)
    nearest = np.linalg.norm(X[:, None] - machine.centres_, axis=2).argmin(axis=1)
    scores = machine.decision_function(X)
    for cluster in range(4):
        rows = nearest == cluster
        for k in np.unique(y[rows]):
            exact = SVC(C=10.0, gamma=0.02).fit(X[rows], y[rows] == k).decision_function(X[rows])
            assert np.allclose(scores[rows, k], exact, rtol=0, atol=1e-3)
        for k in set(range(10)) - set(y[rows]):
            assert np.allclose(scores[rows, k], -1.0)


def test_kernels_of_pseudo_landmarks_are_those_of_the_points_they_stand_for(small_problem):
    X, _ = small_problem("wine", 100)
    expansion = Expansion(
        X.mean(axis=0), X[:7] - X.mean(axis=0), np.array([1.0, 0.5, -2.0]), 0.1, np.zeros(0), np.zeros(1)
    )
    points = expansion.points()
    assert np.allclose(points[:7], X[:7])
    assert np.allclose(expansion.kernels(X), rbf_kernel(X, points, gamma=0.1), rtol=0, atol=1e-13)


def test_weights_are_those_of_least_squares(small_problem):
    X, signs = small_problem("breast_cancer", 300)
    landmarks, none = X[:20], np.array([1.0])
    K = rbf_kernel(X, landmarks, gamma=0.05)
    expected, *_ = np.linalg.lstsq(K, signs)
    expansion = fitted_expansion(X, signs, np.zeros(1), landmarks, none, 0.05)
    assert np.allclose(expansion.values(X), K @ expected, rtol=0, atol=1e-5)


def test_weighted_centres_are_those_of_repeated_rows(real_data):
    X, _ = real_data("iris")
    times = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = weighted_centres(X, times.astype(float), 3, 0)
    repeated = weighted_centres(np.repeat(X, times, axis=0), np.ones(times.sum()), 3, 0)
    assert np.allclose(weighted, repeated)
    assert len(weighted_centres(np.ones((5, 2)), np.ones(5), 3, 0)) == 1


def test_more_landmarks_and_pseudo_landmarks_are_nearer_to_the_svm(split_data):
    X, y, _, _ = split_data("usps")
    X, signs = 2.0 * X[:2000].astype(float) - 1.0, np.where(y[:2000, None] % 2, 1.0, -1.0)
    errors = [one_cluster_error(X, signs, gamma=0.005, n_landmarks=m, pseudo_scales=()) for m in (10, 40, 160)]
    assert errors[1] < 0.9 * errors[0]
    assert errors[2] < 0.6 * errors[1]
    assert one_cluster_error(X, signs, gamma=0.005, n_landmarks=40) < 0.85 * errors[1]


# The bound pays where landmarks are not few against the support vectors (here 250 to 400), and the duals differ.
@pytest.mark.parametrize(("name", "gamma", "gain"), [("ijcnn1", 2.0, 0.9), ("usps", 0.02, 0.75)])
def test_squared_duals_lower_the_error_of_the_model_that_they_bound(split_data, name, gamma, gain):
    X, y, _, _ = split_data(name)
    rows = np.random.default_rng(0).permutation(len(X))[:1500]
    X, y = X[rows].astype(float), y[rows] % 2
    svm, gram = SVC(C=10.0, gamma=gamma).fit(X, y), rbf_kernel(X, gamma=gamma)
    duals = np.zeros(len(X))
    duals[svm.support_] = svm.dual_coef_[0]

    def relative_error(weights: np.ndarray) -> float:
        """|w - w~| / |w|, w~ the projection of w on the span of the landmarks."""
        landmarks = weighted_centres(X, weights, 100, 0)
        inner = rbf_kernel(landmarks, X, gamma=gamma) @ duals
        kept = inner @ np.linalg.solve(rbf_kernel(landmarks, gamma=gamma) + 1e-10 * np.eye(100), inner)
        return float(np.sqrt(1.0 - kept / (duals @ gram @ duals)))

    assert relative_error(duals**2) < gain * relative_error(np.ones(len(X)))


# The figure of the paper for USPS is an error of 4.4 %; whether of ten digits or of two groups is not known here.
# Measured: 4.0, 4.0 and 6.0 %. Ten digits lose by the division: the undivided SVM has 5.1 % at this gamma.
@pytest.mark.parametrize(
    ("problem", "n_clusters", "error"),
    [("odd or even", 10, 0.044), ("below five", 10, 0.044), ("ten digits", 3, 0.066)],
)
def test_usps(split_data, problem, n_clusters, error):
    X, y, X_test, y_test = split_data("usps")
    relabel = {"odd or even": lambda y: y % 2, "below five": lambda y: y < 5, "ten digits": lambda y: y}[problem]
    machine = DCPredClassifier(n_clusters, 100, gamma=0.005).fit(2.0 * X - 1.0, relabel(y))
    assert np.mean(machine.predict(2.0 * X_test - 1.0) != relabel(y_test)) < error


def test_it_repeats_to_the_bit(small_problem):
    X, signs = small_problem("breast_cancer", 400)
    scores = [DCPredClassifier(n_clusters=3).fit(X, signs[:, 0]).decision_function(X) for _ in range(2)]
    assert np.array_equal(*scores)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0),
        ("n_landmarks", 2.5),
        ("C", -1.0),
        ("gamma", "auto"),
        ("pseudo_scales", (1.0,)),
        ("pseudo_scales", ("far",)),
        ("landmark_weights", "none"),
        ("random_state", -1),
    ],
)
def test_a_parameter_that_cannot_work_is_named(real_data, name, value):
    with pytest.raises(ParameterError, match=f"^{name}="):
        DCPredClassifier(**{name: value}).fit(*real_data("iris"))


def test_all_of_scikit_learns_checks_pass():
    results = check_estimator(DCPredClassifier(), on_fail=None, on_skip=None)
    status = {result["check_name"]: result["status"] for result in results}
    assert {name for name, found in status.items() if found == "failed"} == set()
    assert {name for name, found in status.items() if found != "passed"} <= SKIPPED
    assert len(results) >= CHECKS
