"""The three forms of the SVM reach the optimum that a conic solver finds, and report their gap truly."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.gram.store import TileStore
from mllkm_scale.kernels.grid import Family
from mllkm_scale.solver import tiled_svm
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.feature_svm import FeatureSVM
from mllkm_scale.solver.svm import DenseSVM, EpochLimits
from mllkm_scale.solver.tiled_svm import TiledSVM

WEIGHTS = np.array([0.2, 0.0, 0.5, 0.3, 0.0, 0.1])
FORMS = ["dense", "features", "tiles"]
FAMILIES = {
    "gaussian": Family("gaussian", False, 0.0),
    "squared": Family("squared", False, 0.5),
    "component-exponential": Family("exponential", True, 0.5),
    "component-squared": Family("squared", True, 0.0),
}


class Problem:
    """Forty rows of a data set, six kernels of a family on them, and the optimum at fixed weights."""

    def __init__(self, family, C, X, signs, reference, weights=None):
        gamma = 0.02 if family.map == "squared" else 0.1
        self.kernels = family.kernels(X[:6], gamma * np.array([1.0, 2.0, 0.5, 1.0, 4.0, 2.0]), np.arange(1.0, 7.0))
        self.X, self.signs, self.C = X, signs[:, 0], C
        self.box = Box.of(C, len(X)) if weights is None else Box(C, weights)
        phi = self.kernels.features(X) * np.sqrt(WEIGHTS)[:, None]
        self.phi = phi.reshape(len(X), -1)
        self.optimum = reference.solve([self.phi], signs, self.box.upper[:, None]).value

    def bounds(self, duals):
        """Dual and primal value of these duals."""
        w = (duals * self.signs) @ self.phi
        margins = self.signs * (self.phi @ w)
        primal = 0.5 * w @ w + self.box.upper @ np.maximum(0.0, 1.0 - margins)
        return duals.sum() - 0.5 * w @ w, primal, margins

    def svm(self, form, store=None, key=(0,), newton=True):
        if form == "dense":
            gram = lambda weights: self.kernels.combined_gram(weights, self.X, self.X)  # noqa: E731
            return DenseSVM(gram, self.signs, self.box, key, newton=newton)
        if form == "features":
            return FeatureSVM(self.kernels, self.X, self.signs, self.box, key)
        return TiledSVM(self.kernels, self.X, self.signs, self.box, store or TileStore(1 << 20), key=key)


@pytest.fixture(scope="module", params=[1.0, 30.0], ids=["C=1", "C=30"])
def C(request):
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "weighted"])
def weights(request):
    return np.random.default_rng(3).choice([0.02, 1.0, 4.0], 40) if request.param else None


@pytest.fixture(scope="module", params=FAMILIES)
def problem(request, C, weights, small_problem, mkl_reference):
    X, signs = small_problem("breast_cancer", 40)
    X = X[:, :5].copy()
    X[7] += 50.0  # beyond the reach of the bounded maps
    return Problem(FAMILIES[request.param], C, X, signs, mkl_reference, weights)


@pytest.fixture(scope="module")
def easy(small_problem, mkl_reference):
    X, signs = small_problem("breast_cancer", 40)
    return Problem(FAMILIES["gaussian"], 0.1, X[:, :5], signs, mkl_reference)


@pytest.fixture(autouse=True)
def tiny_tiles(monkeypatch):
    monkeypatch.setattr(tiled_svm, "TILE_ROWS", 7)  # six blocks, the last one of five rows


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reaches_the_optimum(problem, form):
    tol = 1e-5 if problem.C == 1.0 else 1e-4
    solution = problem.svm(form).solve(WEIGHTS, np.zeros(40), EpochLimits(tol, 100_000))
    assert solution.duals.min() >= 0.0
    assert (solution.duals <= problem.box.upper).all()
    dual, primal, margins = problem.bounds(solution.duals)
    np.testing.assert_allclose(solution.margins, margins, rtol=1e-6, atol=1e-6)
    assert solution.gap <= tol
    assert solution.gap == pytest.approx((primal - dual) / primal, abs=1e-7)
    assert dual <= problem.optimum * (1 + 1e-8)
    assert primal >= problem.optimum * (1 - 1e-8)


def test_newton_finishes_what_descent_does_not(problem):
    """Ten epochs are far from enough; the finish goes to the optimum all the same."""
    tol = 1e-8
    solution = problem.svm("dense").solve(WEIGHTS, np.zeros(40), EpochLimits(tol, 10))
    assert problem.svm("dense", newton=False).solve(WEIGHTS, np.zeros(40), EpochLimits(tol, 10)).gap > 1e-4
    assert solution.gap <= tol
    assert problem.bounds(solution.duals)[0] == pytest.approx(problem.optimum, rel=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_a_solved_problem_needs_no_more_epochs(problem, form):
    first = problem.svm(form).solve(WEIGHTS, np.zeros(40), EpochLimits(1e-4, 100_000))
    again = problem.svm(form).solve(WEIGHTS, first.duals, EpochLimits(1.1e-4, 100_000))
    assert again.epochs == 0
    np.testing.assert_array_equal(again.duals, first.duals)


@pytest.mark.parametrize("form", FORMS)
def test_the_duals_that_are_given_are_not_changed(problem, form):
    start = np.full(40, 0.5 * problem.C)
    problem.svm(form).solve(WEIGHTS, start, EpochLimits(1e-3, 20))
    assert np.all(start == 0.5 * problem.C)


@pytest.mark.parametrize("form", FORMS)
def test_epochs_are_limited_and_the_gap_is_reported_all_the_same(problem, form):
    solution = problem.svm(form, newton=False).solve(WEIGHTS, np.zeros(40), EpochLimits(0.0, 3))
    assert solution.epochs == 3
    dual, primal, _ = problem.bounds(solution.duals)
    assert solution.gap == pytest.approx((primal - dual) / primal, abs=1e-7)


@pytest.mark.parametrize("form", ["features", "tiles"])
def test_the_order_of_the_visits_follows_the_key(problem, form):
    runs = [
        problem.svm(form, key=key).solve(WEIGHTS, np.zeros(40), EpochLimits(0.0, 2)).duals for key in [(1,), (1,), (2,)]
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("ram_bytes", [0, 4 * 49 * 8, 1 << 20], ids=["no-store", "four-tiles", "all-tiles"])
def test_the_store_may_keep_any_number_of_tiles(easy, ram_bytes):
    with TileStore(ram_bytes) as store:
        solution = easy.svm("tiles", store).solve(WEIGHTS, np.zeros(40), EpochLimits(1e-3, 1000))
        assert store.statistics.ram_peak_bytes <= ram_bytes
        assert (store.statistics.ram_hits > 0) == (ram_bytes > 0)
    roomy = easy.svm("tiles").solve(WEIGHTS, np.zeros(40), EpochLimits(1e-3, 1000))
    np.testing.assert_array_equal(solution.duals, roomy.duals)


def test_only_the_lower_triangle_of_tiles_is_made(easy):
    with TileStore(1 << 20) as store:
        easy.svm("tiles", store).solve(WEIGHTS, np.zeros(40), EpochLimits(1e-3, 50))
        assert store.statistics.misses <= 6 * 7 // 2


def test_tiles_of_other_weights_are_forgotten(easy):
    with TileStore(1 << 20) as store:
        svm = easy.svm("tiles", store)
        svm.solve(WEIGHTS, np.zeros(40), EpochLimits(1e-3, 50))
        held = store.statistics.ram_bytes
        other = svm.solve(WEIGHTS[::-1].copy(), np.zeros(40), EpochLimits(1e-3, 1000))
        assert store.statistics.ram_bytes <= held
        fresh = easy.svm("tiles").solve(WEIGHTS[::-1].copy(), np.zeros(40), EpochLimits(1e-3, 1000))
        np.testing.assert_array_equal(other.duals, fresh.duals)
        svm.close()
        assert store.statistics.ram_bytes == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_least_number_of_epochs_is_done_even_where_the_gap_is_small(problem, form):
    solution = problem.svm(form, newton=False).solve(WEIGHTS, np.zeros(40), EpochLimits(np.inf, least=5))
    assert solution.epochs == 5
    assert problem.svm(form).solve(WEIGHTS, np.zeros(40), EpochLimits(np.inf)).epochs == 0
