"""Interior point, SimpleMKL and the alternating scheme against a conic solver."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.gram.blocks import make_block
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.alternating import alternating_mkl
from mllkm_scale.mkl.interior.interior_point import interior_point
from mllkm_scale.mkl.restricted import Objective, RestrictedProblem
from mllkm_scale.mkl.simple import descent_direction, simple_mkl
from mllkm_scale.solver.box import Box

FIRST_ORDER = {"simple": simple_mkl, "alternating": alternating_mkl}
REFERENCE = 1e-8  # relative accuracy of the conic solver


def check(restricted, solution, mkl_reference):
    """A point of the simplex and of the box whose bounds are true, and as reported."""
    assert solution.weights.min() >= 0
    assert solution.weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert solution.duals.min() >= 0
    assert (restricted.per_class(solution.duals) <= restricted.C).all()
    dual, primal = mkl_reference.bounds(
        restricted.features, restricted.signs, restricted.C, restricted.per_class(solution.duals), solution.weights
    )
    assert solution.objective.dual == pytest.approx(dual, rel=1e-7)
    assert solution.objective.primal == pytest.approx(primal, rel=1e-7)
    assert solution.objective.dual <= restricted.optimum * (1 + REFERENCE)
    assert solution.objective.primal >= restricted.optimum * (1 - REFERENCE)


def test_the_interior_point_reaches_the_optimum(restricted, mkl_reference):
    solution = interior_point(restricted.problem, 1e-7)
    check(restricted, solution, mkl_reference)
    assert solution.objective.gap <= 1e-7
    assert solution.objective.primal == pytest.approx(restricted.optimum, rel=1e-6)
    assert solution.objective.dual == pytest.approx(restricted.optimum, rel=1e-6)


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4])
def test_the_interior_point_stops_at_the_gap_asked_for(restricted, mkl_reference, tol):
    solution = interior_point(restricted.problem, tol)
    check(restricted, solution, mkl_reference)
    assert solution.objective.gap <= tol
    assert solution.steps < interior_point(restricted.problem, 1e-3 * tol).steps


@pytest.mark.parametrize("steps", [0, 3])
def test_the_interior_point_returns_the_best_point_seen_when_stopped(restricted, mkl_reference, steps):
    solution = interior_point(restricted.problem, 1e-7, max_steps=steps)
    check(restricted, solution, mkl_reference)
    assert solution.steps <= steps
    assert solution.objective.gap > 1e-7


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_interior_point_returns_the_best_point_seen_when_asked_for_more_than_rounding_allows(
    restricted, mkl_reference
):
    solution = interior_point(restricted.problem, 1e-15)
    check(restricted, solution, mkl_reference)
    assert solution.objective.gap <= 1e-6


def test_the_interior_point_has_the_same_bits_with_any_number_of_threads(restricted):
    solutions = []
    for size in (1, 2, 3):
        with one_blas_thread(), Threads(size) as threads:
            problem = RestrictedProblem(restricted.blocks, restricted.box, threads)
            solutions.append(interior_point(problem, 1e-5))
    for other in solutions[1:]:
        np.testing.assert_array_equal(other.duals, solutions[0].duals)
        np.testing.assert_array_equal(other.weights, solutions[0].weights)


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("name", ["ionosphere", "sonar", "diabetes"])
def test_the_interior_point_needs_few_steps_on_real_data(small_problem, name, C):
    X, signs = small_problem(name, 200)
    X = X / np.sqrt(X.shape[1])
    rng = np.random.default_rng(0)
    anchors, gammas = X[rng.permutation(200)[:80]], rng.choice([0.3, 1.0, 3.0], 80)
    family = Family("gaussian", local_bias=1.0)
    scales = 1.0 / family.kernels(anchors, gammas).diagonals(X).mean(axis=0)
    block = make_block(family.kernels(anchors, gammas, scales), X, signs[:, 0])
    solution = interior_point(RestrictedProblem([block], C), 1e-6)
    assert solution.objective.gap <= 1e-6
    assert solution.steps <= 30


@pytest.mark.parametrize("solver", FIRST_ORDER)
def test_first_order_solvers_reach_the_optimum(restricted, mkl_reference, solver):
    n = len(restricted.features)
    solution = FIRST_ORDER[solver](restricted.oracle(), np.full(n, 1.0 / n), 1e-3, max_steps=2000)
    check(restricted, solution, mkl_reference)
    assert solution.objective.gap <= 1e-3
    assert solution.objective.primal == pytest.approx(restricted.optimum, rel=1e-3)
    assert solution.objective.dual == pytest.approx(restricted.optimum, rel=1e-3)


def test_simplemkl_starts_from_a_vertex_as_well(restricted, mkl_reference):
    start = np.zeros(len(restricted.features))
    start[-1] = 1.0
    solution = simple_mkl(restricted.oracle(), start, 1e-2)
    check(restricted, solution, mkl_reference)
    assert solution.objective.gap <= 1e-2


def test_alternating_starts_from_no_weights_as_well(restricted, mkl_reference):
    solution = alternating_mkl(restricted.oracle(), np.zeros(len(restricted.features)), 1e-2)
    check(restricted, solution, mkl_reference)
    assert solution.objective.gap <= 1e-2


@pytest.mark.parametrize("solver", [*FIRST_ORDER, "interior"])
def test_solvers_can_be_interrupted(restricted, solver):
    class Interrupted(Exception):
        pass

    def poll():
        raise Interrupted

    def solve():
        if solver == "interior":
            return interior_point(restricted.problem, 1e-7, poll=poll)
        n = len(restricted.features)
        return FIRST_ORDER[solver](restricted.oracle(), np.full(n, 1.0 / n), 1e-3, poll=poll)

    with pytest.raises(Interrupted):
        solve()


def test_an_evaluation_is_the_value_and_the_gradient_of_j(restricted, mkl_reference):
    """J(beta) is the optimum for the one kernel sum_m beta_m k_m; it bounds the optimum over all weights."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(len(restricted.features)))
    evaluation = restricted.oracle(100_000).evaluate(weights, 1e-7)
    together = np.concatenate([np.sqrt(b) * F for b, F in zip(weights, restricted.features, strict=True)], axis=1)
    J = mkl_reference.solve([together], restricted.signs, restricted.C).value
    assert evaluation.value == pytest.approx(J, rel=1e-6)
    assert restricted.optimum * (1 - REFERENCE) <= J
    signed = np.stack(evaluation.duals, axis=1) * restricted.signs
    np.testing.assert_allclose(evaluation.forms, mkl_reference.quadratic_forms(restricted.features, signed), rtol=1e-8)
    other = rng.dirichlet(np.ones(len(weights)))
    # J is convex: it lies above its tangents.
    above = restricted.oracle(100_000).evaluate(other, 1e-7).value
    assert above >= evaluation.value - 0.5 * evaluation.forms @ (other - weights) - 1e-6 * J


def test_an_evaluation_starts_from_the_duals_of_the_one_before(restricted):
    oracle = restricted.oracle()
    weights = np.full(len(restricted.features), 1.0 / len(restricted.features))
    first = oracle.evaluate(weights, 1e-3)
    again = oracle.evaluate(weights, 1e-3)
    assert first.epochs > 0
    assert again.epochs == 0
    assert oracle.evaluations == 2


def test_the_reduced_gradient_descends_within_the_simplex(restricted):
    weights = np.zeros(len(restricted.features))
    weights[[0, 4, 9]] = [0.2, 0.5, 0.3]
    now = restricted.oracle().evaluate(weights, 1e-3)
    direction, pivot = descent_direction(now)
    assert pivot == 4
    assert direction.sum() == pytest.approx(0.0, abs=1e-9 * np.abs(direction).max())
    assert direction @ (-0.5 * now.forms) < 0
    assert np.all(direction[weights == 0] >= 0)


@pytest.mark.parametrize(
    ("primal", "dual", "gap"), [(2.0, 1.0, 0.5), (1.0, 1.0, 0.0), (1.0, -1.0, 2.0), (0.0, 0.0, 0.0)]
)
def test_the_gap_is_relative_to_the_primal(primal, dual, gap):
    assert Objective(primal, dual).gap == gap


def test_the_gap_of_a_point_that_is_not_finite_never_passes_for_small():
    assert not Objective(np.nan, np.nan).gap <= 1.0


@pytest.mark.parametrize("spread", [1e2, 1e6])
def test_the_interior_point_copes_with_weights_of_samples_that_differ_by_far(small_problem, spread):
    """A sample of little weight in a problem of heavy ones: its box is small against theirs."""
    X, signs = small_problem("breast_cancer", 150)
    X = X[:, :5]
    kernels = Family("gaussian", local_bias=1.0).kernels(X[:20], np.tile([0.05, 0.3], 10))
    kernels = Family("gaussian", local_bias=1.0).kernels(
        X[:20], np.tile([0.05, 0.3], 10), 1.0 / kernels.diagonals(X).mean(axis=0)
    )
    weights = np.random.default_rng(0).permutation(np.geomspace(1 / np.sqrt(spread), np.sqrt(spread), 150))
    solution = interior_point(RestrictedProblem([make_block(kernels, X, signs[:, 0])], Box(1.0, weights)), 1e-6)
    assert solution.objective.gap <= 1e-6
    assert solution.steps <= 30
    assert (solution.duals <= weights).all()


def test_a_weight_is_that_many_samples_alike(small_problem):
    """Whole weights are repeated samples, and weights and C count by their product alone."""
    X, signs = small_problem("iris", 40)
    times = np.random.default_rng(1).integers(1, 4, 40)
    kernels = Family("gaussian", local_bias=1.0).kernels(X[:10], np.full(10, 0.3))

    def solved(rows, box):
        blocks = [make_block(kernels, X[rows], y[rows]) for y in signs.T]
        return interior_point(RestrictedProblem(blocks, Box(box.C, np.tile(box.weights, signs.shape[1]))), 1e-7)

    weighted = solved(np.arange(40), Box(2.0, times.astype(float)))
    scaled = solved(np.arange(40), Box(0.5, 4.0 * times))
    repeated = solved(np.repeat(np.arange(40), times), Box.of(2.0, int(times.sum())))
    assert weighted.objective.primal == pytest.approx(repeated.objective.primal, rel=1e-6)
    assert weighted.objective.dual == pytest.approx(repeated.objective.dual, rel=1e-6)
    np.testing.assert_array_equal(weighted.duals, scaled.duals)
