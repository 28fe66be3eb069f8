"""Weights that follow the forms: their fixed points, their invariants, and that they arrive where one exponent does
not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mllkm_scale.kernels.grid import Family
from mllkm_scale.mkl import reweighing
from mllkm_scale.mkl.ascent import joint_ascent
from mllkm_scale.mkl.reweighing import Reweighing
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.feature_svm import samples_on_features


def simplex(values):
    return np.asarray(values) / np.sum(values)


@given(
    arrays(float, 6, elements=st.floats(1e-6, 1.0)),
    st.lists(arrays(float, 6, elements=st.floats(0.0, 1e12)), min_size=1, max_size=30),
)
def test_weights_stay_positive_and_sum_to_one(start, sequence):
    weights, reweigh = simplex(start), Reweighing(6)
    for forms in sequence:
        weights = reweigh(weights, forms)
        assert (weights > 0.0).all()
        assert weights.sum() == pytest.approx(1.0)


def test_equal_forms_of_the_used_kernels_are_a_fixed_point():
    weights, forms = simplex([4.0, 3.0, 3.0, 1e-12]), np.array([2.0, 2.0, 2.0, 1.0])
    reweigh = Reweighing(4)
    after = reweigh(weights, forms)
    np.testing.assert_allclose(after[:3], weights[:3], rtol=1e-6)
    assert after[3] < 1e-8


def test_a_kernel_that_stays_above_the_mean_gains_ever_faster():
    reweigh, gains = Reweighing(2), []
    for _ in range(10):
        weights = np.array([0.5, 0.5])
        after = reweigh(weights, np.array([1.05, 0.95]))
        gains.append(np.log(after[0] / after[1]))
    assert (np.diff(gains) > 0.0).all()
    assert gains[-1] > 2.0 * gains[0]


def test_a_kernel_that_changes_sides_slows_down():
    reweigh, steps = Reweighing(2), []
    for number in range(8):
        forms = np.array([1.05, 0.95]) if number % 2 else np.array([0.95, 1.05])
        after = reweigh(np.array([0.5, 0.5]), forms)
        steps.append(abs(np.log(after[0] / after[1])))
    assert steps[-1] < 0.3 * steps[0]


def test_zero_forms_change_nothing():
    weights = simplex([1.0, 2.0, 3.0])
    np.testing.assert_allclose(Reweighing(3)(weights, np.zeros(3)), weights)


@pytest.fixture(scope="module")
def narrow_and_wide():
    """Two noisy moons in the plane; every sample is an anchor of a very narrow, a narrow and a wide bump."""
    rng = np.random.default_rng(0)
    angle, upper = rng.uniform(0.0, np.pi, 300), rng.random(300) < 0.5
    X = np.stack([np.cos(angle) + ~upper, np.sin(angle)], axis=1) * np.where(upper, 1.0, -1.0)[:, None]
    X += rng.normal(scale=0.3, size=X.shape)
    places, family = (np.tile(X, (3, 1)), np.repeat([60.0, 5.0, 0.2], 300)), Family("gaussian", False, 1.0)
    kernels = family.kernels(*places, 1.0 / family.kernels(*places).diagonals(X).mean(axis=0))
    return kernels, X, np.where(upper, 1.0, -1.0)


def gap_after(most_epochs, kernels, X, signs):
    weights, box = np.full(len(kernels), 1.0 / len(kernels)), Box(10.0, np.ones(len(X)))
    samples = samples_on_features(kernels, weights, X, signs, box, np.zeros(len(X)), np.float64)
    return joint_ascent([samples], [box], weights, 0.1, most_epochs).objective.gap


def test_epochs_arrive_with_narrow_and_wide_bumps_where_one_exponent_does_not(narrow_and_wide, monkeypatch):
    assert gap_after(200, *narrow_and_wide) <= 0.1
    for name in ("_LONGER", "_SHORTER"):
        monkeypatch.setattr(reweighing, name, 1.0)
    assert gap_after(200, *narrow_and_wide) > 0.2
