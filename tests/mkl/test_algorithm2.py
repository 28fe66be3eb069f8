"""Algorithm 2 as printed, on generic and on locally linear kernels, against a conic solver over ALL kernels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from mllkm_scale.data import Dataset
from mllkm_scale.kernels.generic import GenericFamily
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.kernels.normalisation import trace_scales
from mllkm_scale.mkl.algorithm2 import PaperMKL
from mllkm_scale.mkl.families import GridFamily

GAMMAS = np.array([0.02, 0.1])
REFERENCE = 1e-7


@dataclass(frozen=True)
class Problem:
    """A family on a few rows, the features of all its kernels, and the optimum over all of them."""

    family: Any
    X: np.ndarray
    signs: np.ndarray
    C: float
    features: list[np.ndarray]
    optimum: float

    def mkl(self, tol=1e-3, **options):
        return PaperMKL(self.family, self.X, self.signs, self.C, tol, **options)

    def dense(self, state):
        weights = np.zeros(len(self.family))
        weights[state.active] = state.weights
        return weights


def grid_family(X, family):
    anchors = Dataset.from_arrays(X, chunk_rows=11)
    return GridFamily(KernelGrid(family, anchors, GAMMAS, trace_scales(family, anchors, GAMMAS, X)))


@pytest.fixture(scope="module")
def grid_problem(small_problem, mkl_reference):
    def make(map, componentwise, name="breast_cancer", n=32, C=1.0):
        X, signs = small_problem(name, n)
        X = X[:, :4]
        features = mkl_reference.grid_features(
            X, GAMMAS, map=map, componentwise=componentwise, normalize="trace", local_bias=0.5
        )
        family = grid_family(X, Family(map, componentwise, 0.5))
        return Problem(family, X, signs, C, features, mkl_reference.solve(features, signs, C).value)

    return make


@pytest.fixture(scope="module")
def generic_problem(small_problem, mkl_reference):
    def make(name, n=32, C=1.0, normalize="trace"):
        X, signs = small_problem(name, n)
        X = X[:, :4]
        family = GenericFamily.fit(X, normalize=normalize)
        features = [mkl_reference.gram_features(family.gram(id, X, X)) for id in range(len(family))]
        return Problem(family, X, signs, C, features, mkl_reference.solve(features, signs, C).value)

    return make


@pytest.fixture(scope="module")
def small(grid_problem):
    return grid_problem("gaussian", False)


def check(problem, mkl_reference, tol, **options):
    """Every round's bounds are true and as reported; the last one is within the tolerance of the optimum."""
    rounds = list(problem.mkl(tol, **options).rounds())
    for state, certificate in rounds:
        assert state.weights.min() > 0
        assert state.weights.sum() == pytest.approx(1.0, rel=1e-9)
        assert state.duals.min() >= 0
        assert state.duals.max() <= problem.C
        dual, primal = mkl_reference.bounds(
            problem.features, problem.signs, problem.C, state.duals, problem.dense(state)
        )
        assert certificate.dual == pytest.approx(dual, rel=1e-6, abs=1e-6)
        assert certificate.primal == pytest.approx(primal, rel=1e-6)
        assert certificate.dual <= problem.optimum * (1 + REFERENCE)
        assert certificate.primal >= problem.optimum * (1 - REFERENCE)
    state, certificate = rounds[-1]
    assert certificate.gap <= tol
    assert certificate.primal == pytest.approx(problem.optimum, rel=tol)
    assert certificate.dual == pytest.approx(problem.optimum, rel=tol)
    return rounds


@pytest.mark.parametrize(("map", "componentwise"), list(product(MAPS, [False, True])))
def test_all_eight_families_reach_the_optimum_over_all_kernels(grid_problem, mkl_reference, map, componentwise):
    check(grid_problem(map, componentwise), mkl_reference, 1e-3)


@pytest.mark.parametrize("name", ["breast_cancer", "wine"], ids=["one-class", "three-classes"])
@pytest.mark.parametrize("normalize", ["trace", None])
def test_generic_kernels_reach_the_optimum_over_all_kernels(generic_problem, mkl_reference, name, normalize):
    check(generic_problem(name, normalize=normalize), mkl_reference, 1e-3)


def test_classes_share_the_weights_of_locally_linear_kernels(grid_problem, mkl_reference):
    check(grid_problem("squared", False, "iris"), mkl_reference, 1e-3)


def test_a_large_c_is_solved_as_well(grid_problem, mkl_reference):
    check(grid_problem("exponential", False, C=100.0), mkl_reference, 1e-2)


@pytest.mark.parametrize("insertions", [1, 5, None])
def test_any_number_of_insertions_leads_to_the_optimum(small, mkl_reference, insertions):
    rounds = check(small, mkl_reference, 1e-2, insertions=insertions)
    for (before, _), (after, _) in pairwise(rounds):
        entered = np.setdiff1d(after.active, before.active)
        assert set(entered) <= set(before.violators)
        assert insertions is None or len(before.violators) <= insertions


def test_ionosphere_reaches_the_optimum_over_all_kernels(small_problem, mkl_reference):
    X, signs = small_problem("ionosphere", 50)
    family = grid_family(X, Family("squared", False, 1.0))
    features = mkl_reference.grid_features(
        X, GAMMAS, map="squared", componentwise=False, normalize="trace", local_bias=1.0
    )
    problem = Problem(family, X, signs, 1.0, features, mkl_reference.solve(features, signs, 1.0).value)
    check(problem, mkl_reference, 1e-2, insertions=20)


def test_the_first_round_is_the_first_kernel_alone(small):
    state, certificate = next(iter(small.mkl().rounds()))
    assert state.round == 1
    assert state.active.tolist() == [np.flatnonzero(small.family.scales)[0]]
    assert state.weights.tolist() == [1.0]
    assert certificate.n_active == 1


def test_an_excluded_kernel_never_becomes_active(small_problem):
    X, signs = small_problem("breast_cancer", 30)
    family = GenericFamily.fit(X[:, :2])
    scales = family.scales.copy()
    scales[:5] = 0.0
    excluding = GenericFamily(2, family.gammas, "trace", scales)
    for state, _ in PaperMKL(excluding, X[:, :2], signs, 1.0, 1e-2).rounds():
        assert state.active.min() >= 5


def test_violators_exceed_the_active_kernels_and_the_worst_comes_first(small, mkl_reference):
    state, certificate = next(iter(small.mkl(1e-3).rounds()))
    q = mkl_reference.quadratic_forms(small.features, state.duals * small.signs)
    expected = np.flatnonzero(q > (1 + 5e-4) * q[state.active].max())
    assert sorted(state.violators) == expected.tolist()
    assert certificate.n_violating_kernels == len(expected)
    assert state.violators[0] == q.argmax()
    assert np.all(np.diff(q[state.violators]) <= 1e-9 * q.max())


def test_a_training_that_goes_on_from_any_state_ends_with_the_same_bits(small):
    mkl = small.mkl(1e-3, insertions=1)
    states = [state for state, _ in mkl.rounds()]
    assert len(states) >= 4
    resumed = [state for state, _ in small.mkl(1e-3, insertions=5).rounds(states[1])]
    assert len(resumed) == len(states) - 2
    for left, right in zip(states[2:], resumed, strict=True):
        for field in fields(left):
            np.testing.assert_array_equal(getattr(left, field.name), getattr(right, field.name))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_loop_ends_where_the_tolerance_is_out_of_reach(generic_problem):
    """Far below rounding, J stops falling; the certificate says how far it got."""
    problem = generic_problem("breast_cancer", n=10)
    rounds = []
    for pair in problem.mkl(1e-10).rounds():
        rounds.append(pair)
        assert len(rounds) < 60
    state, certificate = rounds[-1]
    assert state.stalled or certificate.gap <= 1e-10
    assert certificate.dual <= problem.optimum * (1 + REFERENCE)
    assert certificate.primal >= problem.optimum * (1 - REFERENCE)


def test_decisions_are_the_kernel_expansion(small, mkl_reference):
    mkl = small.mkl(1e-2)
    *_, (state, _) = mkl.rounds()
    expected = sum(
        b * small.features[id] @ (small.features[id].T @ (state.duals * small.signs))
        for id, b in zip(state.active, state.weights, strict=True)
    )
    np.testing.assert_allclose(mkl.decide(state, small.X), expected, rtol=1e-8, atol=1e-8)


def test_a_training_can_be_interrupted(small):
    class Interrupted(Exception):
        pass

    def poll():
        raise Interrupted

    rounds = small.mkl(poll=poll).rounds()
    next(rounds)
    with pytest.raises(Interrupted):
        next(rounds)


@pytest.mark.parametrize("componentwise", [False, True])
def test_a_grid_is_a_family(grid_problem, mkl_reference, componentwise):
    problem = grid_problem("gaussian", componentwise)
    family, X = problem.family, problem.X
    assert len(family) == 2 * len(X)
    signed = problem.signs * np.random.default_rng(0).uniform(size=problem.signs.shape)
    expected = mkl_reference.quadratic_forms(problem.features, signed)
    np.testing.assert_allclose(family.quadratic_forms(X, signed), expected, rtol=1e-9, atol=1e-12)
    ids, weights = np.array([3, 40, 17]), np.array([0.2, 0.5, 0.3])
    gram = sum(b * problem.features[id] @ problem.features[id].T for b, id in zip(weights, ids, strict=True))
    active = family.active(ids, X)
    np.testing.assert_allclose(active.gram(weights), gram, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(family.combined_gram(ids, weights, X, X), gram, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(active.forms(signed), expected[ids], rtol=1e-9, atol=1e-12)
    prefix = "component-wise " if componentwise else ""
    assert family.describe(17) == f"{prefix}gaussian, anchor 8, gamma 0.1"
