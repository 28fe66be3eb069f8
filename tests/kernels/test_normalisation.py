"""Unit trace, and the kernels that are excluded because they reach almost nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.data import Dataset
from mllkm_scale.kernels import normalisation
from mllkm_scale.kernels.gammas import auto_gammas
from mllkm_scale.kernels.grid import Family, KernelGrid
from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.kernels.normalisation import MIN_REACH, largest_diagonal, list_scales, trace_scales


@pytest.mark.parametrize("map", MAPS)
@pytest.mark.parametrize("componentwise", [False, True])
@pytest.mark.parametrize("local_bias", [0.0, 1.0])
def test_open_kernels_have_a_mean_diagonal_of_one_and_the_others_reach_few_samples(
    mkl_reference, small_problem, map, componentwise, local_bias
):
    X, _ = small_problem("breast_cancer", 50)
    X = X[:, :5]
    family = Family(map, componentwise, local_bias)
    gammas = np.concatenate([auto_gammas(family, X), [60.0]])
    scales = trace_scales(family, Dataset.from_arrays(X, chunk_rows=13), gammas, X)
    expected = np.array(
        [
            mkl_reference.unit_trace_scale(
                mkl_reference.kernel_features(
                    X, anchor, gamma, map=map, componentwise=componentwise, local_bias=local_bias
                )
            )
            for anchor in X
            for gamma in gammas
        ]
    ).reshape(50, -1)
    np.testing.assert_allclose(scales, expected, rtol=1e-6)
    grid = KernelGrid(family, Dataset.from_arrays(X), gammas, scales)
    open_set = np.flatnonzero(scales)
    assert 0 < len(open_set) < scales.size
    assert grid.n_open == len(open_set)
    np.testing.assert_allclose(grid.take(open_set).diagonals(X).mean(axis=0), 1.0, rtol=1e-6)


def test_reach_is_the_effective_number_of_samples():
    """A bounded map with k samples at one distance within its radius has a reach of k."""
    least = int(MIN_REACH)
    angles = np.linspace(0, 2 * np.pi, least + 1, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    far = 100.0 + np.arange(40.0).reshape(20, 2)
    family, anchor = Family("squared"), Dataset.from_arrays(np.zeros((1, 2)))
    enough = trace_scales(family, anchor, np.array([0.5]), np.concatenate([circle, far]))
    too_few = trace_scales(family, anchor, np.array([0.5]), np.concatenate([circle[1:], far]))
    assert enough[0, 0] == pytest.approx((least + 21) / ((least + 1) * 0.25))
    assert too_few[0, 0] == 0.0


def test_a_kernel_that_reaches_nothing_is_excluded_without_a_warning():
    X = np.arange(20.0)[:, None]
    assert not trace_scales(Family("linear"), Dataset.from_arrays(X), np.array([2.0]), X).any()
    assert not trace_scales(Family("gaussian"), Dataset.from_arrays(X), np.array([1e4]), X).any()


def test_scales_have_the_same_bits_in_any_number_of_threads(monkeypatch, small_problem):
    X, _ = small_problem("wine", 90)
    monkeypatch.setattr(normalisation, "_BLOCK_BYTES", 8 * 90 * 7)  # seven anchors
    family, data = Family("gaussian", local_bias=1.0), Dataset.from_arrays(X)
    alone = trace_scales(family, data, np.array([0.01, 0.1]), X)
    with Threads(3) as threads:
        np.testing.assert_array_equal(
            trace_scales(family, data, np.array([0.01, 0.1]), X, ThreadExecutor(threads)), alone
        )


@pytest.mark.parametrize("map", MAPS)
@pytest.mark.parametrize("local_bias", [0.0, 0.7])
def test_the_largest_diagonal_is_that_of_the_worst_distance(map, local_bias):
    family = Family(map, local_bias=local_bias)
    t = np.linspace(0, 30, 300_001)[:, None]
    at_any_distance = family.kernels(np.zeros((1, 1)), np.array([0.4])).diagonals(t).max()
    assert largest_diagonal(family, 0.4) == pytest.approx(at_any_distance, rel=1e-4)


@pytest.mark.parametrize("map", ["gaussian", "exponential"])
def test_an_anchor_far_from_all_samples_is_excluded_though_it_reaches_them_equally_little(map):
    """Its bumps are tiny and alike: divided by their mean they would be of any size near the anchor."""
    rng = np.random.default_rng(0)
    sample = rng.normal(size=(500, 3))
    anchors = Dataset.from_arrays(np.array([[0.0, 0.0, 0.0], [60.0, 0.0, 0.0]]))
    scales = trace_scales(Family(map), anchors, np.array([0.5]), sample)
    assert scales[0, 0] > 0
    assert scales[1, 0] == 0


@pytest.mark.parametrize("map", MAPS)
@pytest.mark.parametrize("componentwise", [False, True])
def test_scales_of_a_list_are_one_over_the_mean_diagonal_bounded_for_kernels_of_small_reach(
    monkeypatch, mkl_reference, small_problem, map, componentwise
):
    X, _ = small_problem("breast_cancer", 50)
    X = X[:, :5].astype(np.float32)
    family, rng = Family(map, componentwise, 0.5), np.random.default_rng(0)
    anchors = X[:30] + 0.1 * rng.normal(size=(30, 5))
    gammas = np.geomspace(0.01, 60.0, 30)
    anchors[3] += 1e6  # reaches nothing
    u = np.array(
        [
            (
                mkl_reference.kernel_features(X, anchor, gamma, map=map, componentwise=componentwise, local_bias=0.5)
                ** 2
            ).sum(axis=1)
            for anchor, gamma in zip(anchors, gammas, strict=True)
        ]
    ).T
    total = np.maximum(u.sum(axis=0), MIN_REACH * u.max(axis=0))
    largest = np.array([largest_diagonal(family, gamma) for gamma in gammas])
    expected = np.divide(50, np.maximum(total, 50e-12 * largest), where=total > 0, out=np.zeros(30))
    scales = list_scales(family, anchors, gammas, X)
    assert scales[3] == 0.0
    np.testing.assert_allclose(scales, expected, rtol=1e-6)
    diagonals = family.kernels(anchors, gammas, scales).diagonals(X.astype(np.float64))
    assert diagonals.mean(axis=0).max() <= 1.0 + 1e-9
    assert diagonals.max() <= 50 / MIN_REACH * (1 + 1e-9)
    few = (u.sum(axis=0) < MIN_REACH * u.max(axis=0)) & (total > 0)
    assert few.any()
    assert (~few & (total > 0)).any()
    monkeypatch.setattr(normalisation, "_BLOCK_BYTES", 8 * 50 * 6 * 4)  # a few kernels at once
    np.testing.assert_allclose(list_scales(family, anchors, gammas, X), scales, rtol=1e-12)


@given(st.floats(0.0, 800.0), st.floats(1e-3, 1e3))
def test_scales_of_kernels_that_reach_samples_with_their_tails_alone_are_finite(exponent, gamma):
    """The diagonal at the only place of a sample is about e^(-2 exponent)."""
    family = Family("gaussian", False, 0.5)
    anchor = np.array([[np.sqrt(exponent / gamma)]])
    with np.errstate(all="raise", under="ignore"):
        [scale] = list_scales(family, anchor, np.array([gamma]), np.zeros((40, 1)))
    assert 0.0 <= scale <= 1e12 / largest_diagonal(family, gamma) * (1 + 1e-9)
