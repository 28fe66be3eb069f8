"""SimpleMKL and SequentialMKL as classifiers: one problem, solved by two algorithms and by a conic solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from mllkm_scale.baselines import SequentialMKLClassifier, SimpleMKLClassifier
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.generic import GenericFamily

SKIPPED = {"check_array_api_input"}  # asks for the environment variable SCIPY_ARRAY_API
BOTH = [SimpleMKLClassifier, SequentialMKLClassifier]


def optimum_by_cvxpy(X: np.ndarray, signs: np.ndarray, C: float) -> float:
    """max 1'a - t / 2 with t >= q_m(a) for all kernels of unit trace, and 0 <= a <= C, in units of a."""
    family = GenericFamily.fit(X)
    duals, t = cp.Variable(len(X), nonneg=True), cp.Variable()
    constraints = [duals <= C / len(X)]
    for id in np.flatnonzero(family.scales):
        values, vectors = np.linalg.eigh(family.gram(id, X, X))
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T * signs
        constraints.append(cp.sum_squares(root[values > 1e-12 * values.max()] @ duals) <= t)
    problem = cp.Problem(cp.Maximize(cp.sum(duals) - 0.5 * t), constraints)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def primal_and_dual(machine: SimpleMKLClassifier, X: np.ndarray, signs: np.ndarray) -> tuple[float, float]:
    """P and D over all kernels, by plain Gram matrices."""
    C = machine.C / len(X)
    a = machine.duals_[:, 0] * signs
    family = machine.family_
    q = np.array([a @ family.gram(id, X, X) @ a for id in range(len(family))])
    norm = machine.weights_ @ np.sqrt(np.maximum(q[machine.kernels_], 0.0))
    f = sum(w * family.gram(id, X, X) @ a for id, w in zip(machine.kernels_, machine.weights_, strict=True))
    hinge = np.maximum(0.0, 1.0 - signs * f).sum()
    return float(0.5 * norm**2 + C * hinge), float(machine.duals_.sum() - 0.5 * q.max())


@pytest.mark.parametrize("kind", BOTH)
def test_all_of_scikit_learns_checks_pass(kind):
    results = check_estimator(kind(tol=0.5), on_fail=None, on_skip=None)
    status = {result["check_name"]: result["status"] for result in results}
    assert {name for name, found in status.items() if found == "failed"} == set()
    assert {name for name, found in status.items() if found != "passed"} <= SKIPPED


@pytest.mark.parametrize("C", [10.0, 100.0])
def test_both_reach_the_optimum_of_a_conic_solver_with_a_gap_that_holds(small_problem, C):
    X, signs = small_problem("breast_cancer", 60)
    X, signs = X[:, :3], signs[:, 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    value = optimum_by_cvxpy(X, signs, C)
    for kind in BOTH:
        machine = kind(C=C, tol=1e-3).fit(X, signs)
        primal, dual = primal_and_dual(machine, X, signs)
        assert dual <= value * (1 + 1e-6)
        assert value <= primal * (1 + 1e-6)
        assert (primal - dual) / primal <= 1e-3
        assert machine.gap_ == pytest.approx((primal - dual) / primal, abs=1e-6)


def test_on_heart_both_are_as_good_as_the_paper_says(real_data):
    X, y = real_data("heart")
    accuracies = {kind: [] for kind in BOTH}
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = np.split(order, [189])
        for kind in BOTH:
            machine = kind(tol=0.05).fit(X[train], y[train])
            accuracies[kind].append(machine.score(X[test], y[test]))
            assert len(machine.weights_) < 247 / 2
            assert machine.weights_.sum() == pytest.approx(1.0)
    for found in accuracies.values():
        assert np.mean(found) >= 0.80  # 80.2 and 80.0 % in the paper


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("name", "value"), [("C", 0.0), ("tol", -1.0), ("C", "much")])
def test_parameters_that_cannot_work_are_named(kind, name, value):
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(ParameterError, match=f"^{name}="):
        kind(**{name: value}).fit(X, y)
