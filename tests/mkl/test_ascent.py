"""Epochs of SDCA with weights that follow: the optimum of a conic solver, whatever the form of the features."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from mllkm_scale import Dataset
from mllkm_scale.base.threads import Threads, one_blas_thread
from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl.ascent import joint_ascent, with_a_share
from mllkm_scale.mkl.forms import Choice, InnerSizes, choose_form, feature_bytes, streamed_bytes
from mllkm_scale.mkl.inner import InnerMKL
from mllkm_scale.mkl.restricted import WorkingSets
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.feature_svm import samples_on_features

C = np.geomspace(0.2, 3.0, 60)


@pytest.fixture(scope="module", params=[False, True], ids=["global", "componentwise"])
def noisy(request, mkl_reference):
    """Two classes of overlapping samples, a fifth of them with the wrong sign: kernels, and the optimum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    signs = np.where((X[:, :2] > 0) ^ (rng.random((60, 2)) < 0.2), 1.0, -1.0)
    family, gammas = Family("gaussian", request.param, 0.5), np.tile([0.1, 0.6], 6)
    kernels = family.kernels(X[:12], gammas)
    kernels = family.kernels(X[:12], gammas, 1.0 / kernels.diagonals(X).mean(axis=0))
    features = list(kernels.features(X).transpose(1, 0, 2))
    return X, signs, kernels, mkl_reference.solve(features, signs, C[:, None]).value


def classes_of(X, signs, kernels, weights, dtype=np.float64, **ways):
    boxes = [Box(1.0, C)] * signs.shape[1]
    own = [np.zeros(len(X)) for _ in boxes]
    return [
        samples_on_features(kernels, weights, X, y, box, duals, dtype, **ways)
        for y, box, duals in zip(signs.T, boxes, own, strict=True)
    ], boxes


def bounds(X, signs, kernels, solution):
    """P and D by the plain formulas, with the duals shortened to their best multiple."""
    duals = solution.duals.reshape(signs.shape[::-1]).T
    features = kernels.features(X).transpose(1, 0, 2)
    vectors = [F.T @ (duals * signs) for F in features]
    forms = np.array([np.sum(v**2) for v in vectors])
    outputs = sum(weight * (F @ v) for weight, F, v in zip(solution.weights, features, vectors, strict=True))
    loss = (C[:, None] * np.maximum(0.0, 1.0 - signs * outputs)).sum()
    primal = 0.5 * (solution.weights @ np.sqrt(forms)) ** 2 + loss
    t = min(1.0, duals.sum() / forms.max())
    return primal, t * duals.sum() - 0.5 * t**2 * forms.max()


@pytest.mark.parametrize("tol", [0.1, 1e-4])
def test_it_arrives_at_the_optimum_of_a_conic_solver(noisy, tol):
    X, signs, kernels, optimum = noisy
    uniform = np.full(len(kernels), 1.0 / len(kernels))
    solution = joint_ascent(*classes_of(X, signs, kernels, uniform), uniform, tol, most_epochs=1e6)
    primal, dual = bounds(X, signs, kernels, solution)
    assert solution.objective.gap <= tol
    assert solution.objective.primal == pytest.approx(primal, rel=1e-9)
    assert solution.objective.dual == pytest.approx(dual, rel=1e-9)
    assert dual <= optimum * (1 + 1e-7)
    assert optimum <= primal * (1 + 1e-7)
    assert tol == 0.1 or np.count_nonzero(solution.weights) < len(kernels)
    assert solution.weights.sum() == pytest.approx(1.0)
    assert (solution.duals >= 0.0).all()
    assert (solution.duals <= np.tile(C, 2)).all()


def test_it_gives_up_where_the_epochs_to_come_are_more_than_allowed(noisy):
    X, signs, kernels, _ = noisy
    uniform = np.full(len(kernels), 1.0 / len(kernels))
    few = joint_ascent(*classes_of(X, signs, kernels, uniform), uniform, 1e-6, most_epochs=30)
    assert few.steps < 30  # it saw that these would not do
    assert few.objective.gap > 1e-6
    primal, dual = bounds(X, signs, kernels, few)
    assert few.objective.gap == pytest.approx((primal - dual) / primal)


@pytest.mark.parametrize("keep", [True, False])
def test_bumps_that_are_made_again_give_the_solution_of_those_that_are_kept(noisy, keep):
    X, signs, kernels, _ = noisy
    uniform = np.full(len(kernels), 1.0 / len(kernels))
    solution = joint_ascent(*classes_of(X, signs, kernels, uniform, keep=keep), uniform, 1e-3, most_epochs=1e6)
    kept = joint_ascent(*classes_of(X, signs, kernels, uniform), uniform, 1e-3, most_epochs=1e6)
    assert solution.steps == kept.steps
    np.testing.assert_allclose(solution.weights, kept.weights, rtol=1e-6, atol=1e-12)


def test_the_number_of_threads_does_not_change_the_bits(noisy):
    X, signs, kernels, _ = noisy
    uniform = np.full(len(kernels), 1.0 / len(kernels))
    found = []
    with one_blas_thread():
        for size in (1, 2, 3):
            with Threads(size) as threads:
                own = classes_of(X, signs, kernels, uniform, np.float32, threads=threads)
                found.append(joint_ascent(*own, uniform, 1e-2, 1e4))
    for other in found[1:]:
        assert np.array_equal(other.duals, found[0].duals)
        assert np.array_equal(other.weights, found[0].weights)


def test_samples_that_no_kernel_tells_apart_end_the_ascent():
    X, signs = np.zeros((6, 2)), np.tile([1.0, -1.0], 3)[:, None]
    kernels = Family("gaussian").kernels(np.zeros((2, 2)), np.ones(2))
    own = [samples_on_features(kernels, np.full(2, 0.5), X, signs[:, 0], Box.of(1.0, 6), np.zeros(6), np.float64)]
    solution = joint_ascent(own, [Box.of(1.0, 6)], np.full(2, 0.5), 1e-3, 1e4)
    assert np.isfinite(solution.objective.primal)


def test_new_kernels_get_a_share_of_the_weight():
    assert with_a_share(np.array([3.0, 0.0, 0.0, 1.0]), 0.2).tolist() == pytest.approx([0.6, 0.1, 0.1, 0.2])
    assert with_a_share(np.zeros(4), 0.2).tolist() == [0.25] * 4
    assert with_a_share(np.array([1.0, 3.0]), 0.2).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("form", ["features", "streamed"])
def test_large_noisy_problems_are_solved_by_epochs_alone(monkeypatch, form):
    """A quarter of the labels is wrong, so half of the samples are support vectors: nothing follows the epochs."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 20))
    signs = np.where((X[:, 0] * X[:, 1] > 0) ^ (rng.random(3000) < 0.25), 1.0, -1.0)[:, None]
    kernels = Family("gaussian", False, 0.5).kernels(X[:40], np.tile([0.01, 0.05], 20))
    kernels = replace(kernels, scales=1.0 / kernels.diagonals(X).mean(axis=0))
    for name in ("interior_point", "alternate"):
        monkeypatch.setattr(InnerMKL, name, lambda *_, name=name: pytest.fail(f"{name} follows"))
    monkeypatch.setattr(InnerMKL, "choose", lambda *_: Choice(form, 0, ""))
    inner = InnerMKL(Dataset.from_arrays(X), signs, 10**9)
    sets = WorkingSets(kernels, np.full(40, 1 / 40), [np.arange(3000)], [np.zeros(3000)], Box.of(0.3, 3000))
    solution = inner(sets, 0.02)
    assert solution.objective.gap <= 0.02
    assert np.count_nonzero(solution.duals) > 1500


def test_bumps_are_kept_where_they_fit():
    sizes = InnerSizes([200_000], 500, 50, False)
    assert choose_form(sizes, feature_bytes(sizes)).form == "features"
    assert choose_form(sizes, feature_bytes(sizes) - 1).form == "streamed"
    assert choose_form(sizes, streamed_bytes(sizes)).form == "streamed"
    assert streamed_bytes(sizes) < 0.5 * feature_bytes(sizes)


@pytest.mark.parametrize("n_classes", [1, 3])
@pytest.mark.parametrize(("form", "arithmetic"), [("features", feature_bytes), ("streamed", streamed_bytes)])
def test_the_arithmetic_bounds_what_epochs_allocate(form, arithmetic, n_classes):
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(6000, 20)).astype(np.float32), rng.choice([-1.0, 1.0], size=(6000, n_classes))
    kernels = Family("gaussian", False, 0.5).kernels(X[:200].astype(float), np.full(200, 0.02))
    rows, starts = [np.arange(6000)] * n_classes, [np.zeros(6000)] * n_classes
    sets = WorkingSets(kernels, np.full(200, 1 / 200), rows, starts, Box.of(0.1, 6000))
    with Threads(2) as threads:
        inner = InnerMKL(Dataset.from_arrays(X), signs, 10**9, threads=threads)
        inner.ascend(Choice(form, 0, ""), sets, 0.3, 1)  # imports and compilation do not count
        tracemalloc.start()
        inner.ascend(Choice(form, 0, ""), sets, 0.05, 6)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    need = arithmetic(inner.sizes(sets, 0.05))
    assert 0.3 * need < peak <= need
