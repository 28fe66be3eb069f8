"""Starts, steps and ends of the interior point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale.mkl.interior.interior_point import Newton, interior_point
from mllkm_scale.mkl.interior.iterate import cold_start, lifted, longest_step, purified, warm_start


def starts(restricted):
    problem = restricted.problem
    solution = interior_point(problem, 1e-3)
    return [cold_start(problem), warm_start(problem, solution.weights, solution.duals)]


def test_starts_are_strictly_inside_and_violate_no_row(restricted):
    problem = restricted.problem
    for point in starts(restricted):
        q = problem.forms(point.duals)
        assert point.duals.min() > 0
        assert (point.duals < problem.upper).all()
        assert min(point.lower.min(), point.upper.min(), point.weights.min(), point.slacks.min()) > 0
        assert point.weights.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(0.5 * q + point.slacks, point.level, rtol=1e-9)


def test_a_start_near_the_solution_ends_at_the_same_optimum(restricted, mkl_reference):
    near = interior_point(restricted.problem, 1e-2)
    solution = interior_point(restricted.problem, 1e-6, near=(near.weights, near.duals))
    assert solution.objective.gap <= 1e-6
    assert solution.objective.primal == pytest.approx(restricted.optimum, rel=1e-5)


def test_new_kernels_and_samples_have_no_weight_and_no_dual_yet(restricted):
    """Half of both, which is not near at all, must not lead astray."""
    near = interior_point(restricted.problem, 1e-2)
    weights, duals = near.weights.copy(), near.duals.copy()
    weights[::2] = 0.0
    duals[::2] = 0.0
    if not weights.any():
        weights[0] = 1.0
    solution = interior_point(restricted.problem, 1e-5, near=(weights, duals))
    assert solution.objective.primal == pytest.approx(restricted.optimum, rel=1e-4)


def test_without_weights_or_duals_to_start_from_it_starts_from_afar(restricted):
    problem = restricted.problem
    nothing = np.zeros(problem.blocks[0].n_kernels), np.zeros(problem.n_duals)
    afar, near = interior_point(problem, 1e-3), interior_point(problem, 1e-3, near=nothing)
    np.testing.assert_array_equal(near.duals, afar.duals)
    np.testing.assert_array_equal(near.weights, afar.weights)


def test_correctors_make_no_step_shorter(restricted):
    problem = restricted.problem
    point = cold_start(problem)
    for _step in range(4):
        newton = Newton(problem, point, *problem.moments(point.duals))
        mehrotra, _target = newton.corrected_direction()
        direction, step = newton.centred_direction()
        assert step >= longest_step(point, mehrotra, problem.upper)
        assert step == longest_step(point, direction, problem.upper)
        point = point.moved(0.99 * step, direction)
        point = lifted(point, problem.forms(point.duals))


def test_directions_solve_the_linearised_conditions(restricted):
    """Every equation of the step, put in."""
    problem = restricted.problem
    point = cold_start(problem)
    V, q = problem.moments(point.duals)
    U, newton = problem.columns(V), Newton(problem, point, V, q)
    row = 0.5 * q + point.slacks - point.level + 0.1
    targets = replace(point.products(problem.upper), rows=np.full(len(q), 0.3))
    step = newton.direction(row, targets)
    curvature = problem.columns(problem.vectors(step.duals)) @ point.weights
    scale = np.abs(newton.residual_duals).max()
    np.testing.assert_allclose(
        curvature + U @ step.weights - step.lower + step.upper, -newton.residual_duals, atol=1e-6 * scale
    )
    np.testing.assert_allclose(U.T @ step.duals + step.slacks - step.level, -row, atol=1e-6 * np.abs(row).max())
    np.testing.assert_allclose(step.weights.sum(), newton.residual_level, atol=1e-8)
    np.testing.assert_allclose(point.weights * step.slacks + point.slacks * step.weights, targets.rows, rtol=1e-6)
    np.testing.assert_allclose(point.lower * step.duals + point.duals * step.lower, targets.lower, rtol=1e-6)
    np.testing.assert_allclose(
        -point.upper * step.duals + (problem.upper - point.duals) * step.upper, targets.upper, rtol=1e-6
    )


def test_weights_far_below_their_slacks_vanish(restricted):
    point = cold_start(restricted.problem)
    q = np.full(len(point.weights), 2.0)
    point = replace(point, slacks=np.full(len(q), 0.5))
    small = point.weights.copy()
    small[0] *= 0.4
    point = replace(point, weights=small)
    assert purified(point, q, 1.0)[0] == 0.0
    np.testing.assert_array_equal(purified(point, q, 1.0)[1:], small[1:])
    np.testing.assert_array_equal(purified(point, q, 0.1), small)


def test_the_largest_weight_never_vanishes(restricted):
    point = cold_start(restricted.problem)
    weights = purified(point, np.zeros(len(point.weights)), 1.0)
    np.testing.assert_array_equal(weights, point.weights)


@pytest.mark.parametrize("steps", [0, 2])
def test_of_two_ways_that_were_cut_short_the_better_end_is_returned(restricted, steps):
    near = interior_point(restricted.problem, 1e-3)
    afar = interior_point(restricted.problem, 1e-9, max_steps=steps)
    both = interior_point(restricted.problem, 1e-9, max_steps=steps, near=(near.weights, near.duals))
    assert both.objective.gap <= afar.objective.gap
