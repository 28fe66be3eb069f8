"""The Newton system against its dense twin: factors of samples and of columns, in single and in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.mkl.forms import COLUMN_TOL
from mllkm_scale.mkl.interior.factors import ColumnFactors, SampleFactors
from mllkm_scale.mkl.interior.interior_point import interior_point
from mllkm_scale.mkl.interior.newton_system import NewtonSystem
from mllkm_scale.mkl.restricted import RestrictedProblem


@pytest.fixture(params=["samples", "columns"])
def problem(request, restricted):
    """The interior point's problem, whose systems are factored on one side or the other."""
    by_columns, blocks = request.param == "columns", restricted.lean_blocks or restricted.blocks
    if by_columns and not blocks[0].width:
        pytest.skip("generic kernels have no explicit features")
    return RestrictedProblem(blocks, restricted.box, lean=bool(restricted.lean_blocks), by_columns=by_columns)


def point(problem, spread):
    """Weights, of which one is next to nothing, duals, diagonals over some orders of magnitude, and slacks."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(problem.n_kernels))
    weights[1] = 1e-12
    duals, diagonal = rng.uniform(0.1, 1.9, problem.n_duals), 10 ** rng.uniform(-spread, spread, problem.n_duals)
    return weights, duals, diagonal, rng.uniform(0.01, 1.0, problem.n_kernels)


def dense(problem, weights, duals, diagonal, slacks):
    """N as a matrix."""
    N = np.zeros((problem.n_duals, problem.n_duals))
    V = problem.vectors(duals)
    for block, part in zip(problem.blocks, problem.slices, strict=True):
        N[part, part] = block.gram(weights)
    U = problem.columns(V)
    return N + np.diag(diagonal) + (U * (weights / slacks)) @ U.T, V


@pytest.mark.parametrize("single", [True, False])
def test_systems_are_solved_as_by_a_dense_matrix(problem, single):
    weights, duals, diagonal, slacks = point(problem, 2.0)
    N, V = dense(problem, weights, duals, diagonal, slacks)
    problem.single = single
    system = NewtonSystem(problem, weights, diagonal, V, weights / slacks)
    assert isinstance(system.inverse, ColumnFactors if problem.by_columns else SampleFactors)
    right = np.random.default_rng(1).normal(size=problem.n_duals)
    exact = np.linalg.solve(N, right)
    np.testing.assert_allclose(system.product(exact), right, atol=1e-5 * np.abs(right).max())
    found, roughly = system.solve(right), system.solve(right, roughly=True)
    error = found - exact
    assert error @ N @ error <= 1e-8 * (exact @ N @ exact)
    assert (roughly - exact) @ N @ (roughly - exact) <= (1e-4 if system.dtype is np.float32 else 1e-8) * (
        exact @ N @ exact
    )


def test_both_sides_are_cut_into_panels_without_a_trace(problem, monkeypatch):
    weights, duals, diagonal, slacks = point(problem, 1.0)
    _, V = dense(problem, weights, duals, diagonal, slacks)
    problem.single = False
    right = np.random.default_rng(1).normal(size=problem.n_duals)
    whole = NewtonSystem(problem, weights, diagonal, V, weights / slacks).solve(right)
    monkeypatch.setattr("mllkm_scale.mkl.interior.factors.PANEL", 5)
    monkeypatch.setattr("mllkm_scale.mkl.interior.factors.ROWS", 7)
    cut = NewtonSystem(problem, weights, diagonal, V, weights / slacks).solve(right)
    np.testing.assert_allclose(cut, whole, rtol=1e-6, atol=1e-9 * np.abs(whole).max())


@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_the_interior_point_arrives_by_either_side(problem, restricted, tol):
    """Even with more columns than samples, where the other side would be taken, to the gaps that are asked of it."""
    if problem.by_columns:
        tol = max(tol, COLUMN_TOL)
    solution = interior_point(problem, tol)
    assert solution.objective.gap <= tol
    assert solution.objective.dual <= restricted.optimum * (1 + 1e-6)
    assert restricted.optimum <= solution.objective.primal * (1 + 1e-6)


def test_features_are_a_root_of_the_gram(restricted):
    rng = np.random.default_rng(0)
    for block in restricted.blocks:
        if not block.width:
            with pytest.raises(NotImplementedError, match="no explicit features"):
                block.features(np.ones(block.n_kernels))
            continue
        weights = rng.dirichlet(np.ones(block.n_kernels))
        weights[2] = 0.0
        F = block.features(weights)
        assert F.shape == (len(block.signs), (block.n_kernels - 1) * block.width)
        np.testing.assert_allclose(F @ F.T, block.gram(weights), atol=1e-10)
        np.testing.assert_array_equal(block.features(weights, slice(3, 9)), F[3:9])
