"""Local Deep Kernel Learning against NumPy twins, finite differences, and the figures known for USPS."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale.baselines.ldkl import Forest, LDKLClassifier, mean_hinge, slopes_in_place
from mllkm_scale.baselines.ldkl_tree import path_scores, route_slopes, soft_paths
from mllkm_scale.errors import ParameterError

CHECKS = 55  # of scikit-learn 1.9; none is excepted
SKIPPED = {"check_array_api_input"}  # asks for the environment variable SCIPY_ARRAY_API


def ancestors(node: int) -> list[tuple[int, float]]:
    """Ancestors of a node, each with +1 where the way down takes its first child and -1 where the second."""
    found = []
    while node:
        node, side = (node - 1) // 2, 1.0 if node % 2 else -1.0
        found.append((node, side))
    return found


def soft_paths_by_products(turns: np.ndarray, n_nodes: int) -> np.ndarray:
    """I_k as the product over the ancestors of k."""
    factors = [[0.5 * (1.0 + side * turns[..., j]) for j, side in ancestors(k)] for k in range(n_nodes)]
    return np.stack([np.prod(f, axis=0) if f else np.ones(turns.shape[:-1]) for f in factors], axis=-1)


def hard_scores(X: np.ndarray, forest: Forest, sigma: float) -> np.ndarray:
    """f with the hard indicator of each node in place of the soft one."""
    projected = forest.project(np.column_stack([X, np.ones(len(X))]))
    routes, gates, outputs = (projected[..., part] for part in forest.parts)
    paths = soft_paths_by_products(np.where(routes > 0, 1.0, -1.0), forest.n_nodes)
    return (paths * np.tanh(sigma * gates) * outputs).sum(axis=2)


def random_forest(rng: np.random.Generator, depth: int = 3, K: int = 2, width: int = 31) -> Forest:
    J = 2**depth - 1
    return Forest(rng.standard_normal((K, J + 2 * (2 * J + 1), width)) / np.sqrt(width), depth)


@given(depth=st.integers(1, 5), seed=st.integers(0, 1000))
@settings(max_examples=15)
def test_soft_paths_are_products_over_ancestors_and_share_every_level(depth, seed):
    turns = np.random.default_rng(seed).uniform(-1, 1, (3, 2, 2**depth - 1))
    paths = np.empty((3, 2, 2 ** (depth + 1) - 1))
    soft_paths(turns, paths)
    assert np.allclose(paths, soft_paths_by_products(turns, paths.shape[2]), rtol=0, atol=1e-15)
    for level in range(depth + 1):
        assert np.allclose(paths[..., 2**level - 1 : 2 ** (level + 1) - 1].sum(axis=2), 1.0)


def test_route_slopes_are_the_sums_over_both_subtrees():
    rng = np.random.default_rng(0)
    turns, shares = rng.uniform(-1, 1, (4, 2, 7)), rng.standard_normal((4, 2, 15))
    expected = np.zeros_like(turns)
    for k in range(15):
        for j, side in ancestors(k):
            expected[..., j] += shares[..., k] * (side - turns[..., j])
    slopes = np.empty_like(turns)
    route_slopes(turns, shares.copy(), slopes)
    assert np.allclose(slopes, expected, rtol=0, atol=1e-14)


def test_path_scores_are_those_of_hard_indicators(small_problem):
    X, _ = small_problem("breast_cancer", 200)
    forest = random_forest(np.random.default_rng(1))
    scores = np.empty((len(X), 2))
    path_scores(X, *(np.ascontiguousarray(forest.parameters[:, part]) for part in forest.parts), 0.7, scores)
    assert np.allclose(scores, hard_scores(X, forest, 0.7), rtol=0, atol=1e-12)


def test_the_soft_loss_tends_to_the_loss_of_the_hard_path(small_problem):
    X, signs = small_problem("breast_cancer", 200)
    forest, rows = random_forest(np.random.default_rng(2), K=1), np.column_stack([X, np.ones(len(X))])
    hard = np.maximum(0.0, 1.0 - signs * hard_scores(X, forest, 1.0)).mean()
    errors = [abs(mean_hinge(forest, rows, signs, 1.0, steepness)[0] - hard) for steepness in (1.0, 100.0, 1e7)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6


def test_the_gradient_is_that_of_finite_differences(small_problem):
    X, signs = small_problem("wine", 40)
    rng, sharpness = np.random.default_rng(3), np.array([0.5, 1.0, 3.0]).reshape(1, 3, 1)
    forest, rows = random_forest(rng, depth=2, K=3, width=14), np.column_stack([X, np.ones(len(X))])

    def loss(parameters: np.ndarray) -> float:
        changed = Forest(parameters, 2)
        return slopes_in_place(changed, changed.project(rows), signs, 0.8, sharpness)

    projected = forest.project(rows)
    slopes_in_place(forest, projected, signs, 0.8, sharpness)
    gradient = (projected.reshape(len(rows), -1).T @ rows).reshape(forest.parameters.shape)
    for _ in range(20):
        direction = rng.standard_normal(gradient.shape)
        change = loss(forest.parameters + 1e-6 * direction) - loss(forest.parameters - 1e-6 * direction)
        assert change / 2e-6 == pytest.approx(np.vdot(gradient, direction), rel=1e-5)


def test_training_lowers_the_loss_and_repeats_to_the_bit(small_problem):
    X, signs = small_problem("breast_cancer", 400)
    machine, twin = (LDKLClassifier(epochs=10).fit(X, signs[:, 0]) for _ in range(2))
    assert machine.losses_[-1] < 0.2 * machine.losses_[0]
    assert np.array_equal(machine.predictors_, twin.predictors_)
    assert np.array_equal(machine.decision_function(X), twin.decision_function(X))
    for changed in ({"random_state": 1}, {"batch_size": 10}):
        other = LDKLClassifier(epochs=10, **changed).fit(X, signs[:, 0])
        assert not np.array_equal(machine.predictors_, other.predictors_)


def test_it_bends_where_a_linear_machine_cannot(real_data):
    X, y = real_data("banana")
    learn, test = slice(None, None, 2), slice(1, None, 2)
    bent = LDKLClassifier(depth=4, lambda_w=1e-4, lambda_v=1e-4, lambda_theta=1e-4).fit(X[learn], y[learn])
    straight = LinearSVC().fit(X[learn], y[learn])
    assert straight.score(X[test], y[test]) < 0.6
    assert bent.score(X[test], y[test]) > 0.87


# The paper is binary, and its figure for USPS is an error of 4.0 %; which digits it took together is not known here.
# Measured: 3.2, 4.3 and 5.6 %. Ten trees, one against the rest, stay behind that figure.
@pytest.mark.parametrize(
    ("problem", "epochs", "error"), [("odd or even", 40, 0.040), ("below five", 40, 0.050), ("ten digits", 15, 0.064)]
)
def test_usps(split_data, problem, epochs, error):
    X, y, X_test, y_test = split_data("usps")
    relabel = {"odd or even": lambda y: y % 2, "below five": lambda y: y < 5, "ten digits": lambda y: y}[problem]
    machine = LDKLClassifier(lambda_w=0.01, lambda_v=0.01, lambda_theta=0.01, epochs=epochs)
    machine.fit(2.0 * X - 1.0, relabel(y))
    assert np.mean(machine.predict(2.0 * X_test - 1.0) != relabel(y_test)) < error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("depth", 0),
        ("epochs", 1.5),
        ("batch_size", 0),
        ("lambda_w", 0.0),
        ("sigma", -1.0),
        ("learning_rate", "fast"),
        ("random_state", -1),
    ],
)
def test_a_parameter_that_cannot_work_is_named(real_data, name, value):
    with pytest.raises(ParameterError, match=f"^{name}={value!r}"):
        LDKLClassifier(**{name: value}).fit(*real_data("iris"))


def test_all_of_scikit_learns_checks_pass():
    results = check_estimator(LDKLClassifier(), on_fail=None, on_skip=None)
    status = {result["check_name"]: result["status"] for result in results}
    assert {name for name, found in status.items() if found == "failed"} == set()
    assert {name for name, found in status.items() if found != "passed"} <= SKIPPED
    assert len(results) >= CHECKS
