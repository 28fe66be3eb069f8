"""The interior point on free samples: from far away, with few of them at a time, and where nothing fits."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl import free_samples
from mllkm_scale.mkl.forms import Choice
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.oracle import Oracle
from mllkm_scale.mkl.restricted import WorkingSets
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.svm import SVMSolution


@pytest.fixture(scope="module")
def noisy():
    """A third of the labels is wrong; the optimum by the interior point on all samples."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    signs = np.where((X[:, 0] * X[:, 1] > 0) ^ (rng.random(600) < 0.3), 1.0, -1.0)[:, None]
    family, gammas = Family("gaussian", False, 0.5), np.tile([0.1, 0.5, 2.0], 10)
    kernels = family.kernels(X[:30], gammas)
    kernels = family.kernels(X[:30], gammas, 1.0 / kernels.diagonals(X).mean(axis=0))
    weights = np.zeros(30)
    weights[3] = 1.0
    sets = WorkingSets(kernels, weights, [np.arange(600)], [np.zeros(600)], Box.of(0.2, 600))
    inner = InnerMKL(Dataset.from_arrays(X), signs, 10**9)
    return inner, sets, inner.interior_point(Choice("dense", 10**6, ""), sets, 1e-7).objective.primal


def gap_of(inner, sets, solution):
    """The relative gap by the plain formula: features of every kernel, whole."""
    X, signs = inner.rows_of(sets.rows[0]), inner.signs[:, 0]
    mass, outputs, forms = solution.duals * signs, 0.0, []
    for m, weight in enumerate(solution.weights):
        F = sets.kernels.take(slice(m, m + 1)).features(X)[:, 0]
        w = F.T @ mass
        outputs = outputs + weight * (F @ w)
        forms.append(w @ w)
    hinge = np.maximum(0.0, 1.0 - signs * outputs).sum()
    primal = 0.5 * (solution.weights @ np.sqrt(forms)) ** 2 + sets.box.C * hinge
    return (primal - (solution.duals.sum() - 0.5 * max(forms))) / primal


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_from_the_weights_of_one_kernel_to_the_optimum(noisy, tol):
    inner, sets, optimum = noisy
    solution = inner.alternate(Choice("features", 0, ""), sets, tol)
    assert gap_of(inner, sets, solution) <= tol * (1 + 1e-3)
    assert solution.objective.primal == pytest.approx(optimum, rel=2 * tol)


def test_a_step_that_goes_too_far_is_taken_back_to_where_p_is_lower(noisy):
    """Away from the optimum all the way raises P, as a little of it does; past a poor start, a part lowers it."""
    inner, sets, _ = noisy
    best = inner.alternate(Choice("features", 0, ""), sets, 1e-6)
    svm, rows = inner.svms(sets, None, keep=True)[0], sets.rows[0]

    def forms(_, duals):
        return sets.kernels.quadratic_forms(*inner.signed(rows, 0, duals))

    oracle = Oracle([svm], forms)
    useless = np.zeros(30)
    useless[8] = 1.0
    at_best = oracle.evaluate(best.weights, 1e-7)
    away = free_samples._Step(at_best, useless, at_best.duals)
    assert free_samples._step_back(oracle, away, 1.0, 1e-7)[0] is None
    poor = oracle.evaluate(0.7 * best.weights + 0.3 * useless, 1e-7)
    past = free_samples._Step(poor, 0.3 * best.weights + 0.7 * np.roll(best.weights, 1), poor.duals)
    back, _ = free_samples._step_back(oracle, past, 1.0, 1e-7)
    assert back is not None
    assert back.objective.primal < poor.objective.primal


def test_too_many_free_samples_are_solved_for_in_parts(noisy, monkeypatch):
    inner, sets, optimum = noisy
    counts, plain = [], InnerMKL.solve_free

    def counted(self, sets, weights, duals, free, tol):
        counts.append(int(free[0].sum()))
        return plain(self, sets, weights, duals, free, tol)

    monkeypatch.setattr(InnerMKL, "solve_free", counted)
    monkeypatch.setattr(free_samples, "_MOST_FREE", 60)
    solution = inner.alternate(Choice("features", 0, ""), sets, 1e-2)
    assert max(counts) <= 60
    assert solution.objective.gap <= 1e-2
    assert solution.objective.dual <= optimum * (1 + 1e-6) <= solution.objective.primal * (1 + 2e-6)
    assert gap_of(inner, sets, solution) == pytest.approx(solution.objective.gap, abs=1e-5)


def test_samples_near_a_kernel_that_has_no_weight_yet_are_not_held(noisy, monkeypatch):
    """It is large for the few samples that it reaches: at C, where the others leave them, its q would be enormous."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(330, 3))
    X[300:] = 6.0 + 0.3 * X[300:]
    signs = np.where(X[:, 0] * X[:, 1] + rng.normal(size=330) > 0, 1.0, -1.0)[:, None]
    signs[300:] = -1.0
    family, gammas = Family("gaussian", False, 0.5), np.full(11, 0.1)
    kernels = family.kernels(np.vstack([X[:10], X[300:301]]), gammas)
    kernels = family.kernels(kernels.anchors, gammas, 1.0 / kernels.diagonals(X).mean(axis=0))
    weights = np.append(np.full(10, 0.1), 0.0)
    sets = WorkingSets(kernels, weights, [np.arange(330)], [np.zeros(330)], Box.of(5.0, 330))
    inner, masks, plain = InnerMKL(Dataset.from_arrays(X), signs, 10**9), [], InnerMKL.solve_free

    def watched(self, sets, weights, duals, free, tol):
        masks.append(free[0].copy())
        return plain(self, sets, weights, duals, free, tol)

    monkeypatch.setattr(InnerMKL, "solve_free", watched)
    solution = inner.alternate(Choice("features", 0, ""), sets, 1e-3)
    assert solution.weights[10] > 0.0
    assert masks[0][300:].mean() > 0.5
    assert gap_of(inner, sets, solution) <= 1e-3 * (1 + 1e-3)


def test_where_no_free_samples_fit_the_weights_follow_a_first_order_rule(noisy, monkeypatch):
    inner, sets, optimum = noisy
    monkeypatch.setattr(InnerMKL, "solve_free", lambda *_: None)
    solution = inner.alternate(Choice("features", 0, ""), sets, 0.05)
    assert gap_of(inner, sets, solution) <= 0.05 * (1 + 1e-3)
    assert solution.objective.dual <= optimum


def test_an_evaluation_starts_from_the_duals_that_it_is_given():
    class Still:
        signs, box = np.ones(3), Box.of(1.0, 3)

        def solve(self, weights, duals, limits):
            return SVMSolution(duals, np.ones(3), 0.0, 0)

    oracle = Oracle([Still()], lambda k, duals: np.array([duals.sum()]))
    given = [np.array([0.1, 0.2, 0.3])]
    assert oracle.evaluate(np.ones(1), np.inf, start=given).forms[0] == pytest.approx(0.6)
    assert oracle.evaluate(np.ones(1), np.inf).forms[0] == pytest.approx(0.6)
