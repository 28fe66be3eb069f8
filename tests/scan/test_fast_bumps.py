"""Compiled distances and bumps against the plain ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.maps import MAPS, bumps, uses_plain_distance
from mllkm_scale.scan.fast_bumps import add_forms, bumps_of_gammas, distances

SINGLE, DOUBLE = np.float32, np.float64


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("map", MAPS)
def test_distances_are_those_of_the_map_and_zero_where_a_row_is_an_anchor(map, dtype):
    X = (np.random.default_rng(0).normal(size=(40, 7)) + 3.0).astype(dtype)
    anchors = np.ascontiguousarray(X[::3])
    t = distances(map, X, anchors)
    expected = squared_distances(X.astype(DOUBLE), anchors.astype(DOUBLE))
    if uses_plain_distance(map):
        np.testing.assert_allclose(t**2, expected, rtol=1e-5, atol=1e-4)
    else:
        np.testing.assert_allclose(t, expected, rtol=1e-5, atol=1e-4)
    assert t.dtype == dtype
    assert not t[::3].diagonal().any()


@pytest.mark.parametrize("map", MAPS)
@given(gamma=st.floats(1e-6, 1e6), largest=st.floats(1e-3, 1e6))
def test_bumps_in_single_precision_err_by_the_rounding_of_their_argument(map, gamma, largest):
    t = np.linspace(0.0, largest, 4 * 33, dtype=SINGLE).reshape(4, 33)
    gammas = np.array([gamma, 2.0 * gamma])
    H = bumps_of_gammas(map, t, gammas)
    squared = t.astype(DOUBLE) ** 2 if uses_plain_distance(map) else t.astype(DOUBLE)
    for g, value in enumerate(gammas):
        expected = bumps(map, squared, value)
        allowed = 2e-7 * (1.0 + value * t) * np.maximum(expected, 2.0**-100)
        if map in ("linear", "squared"):
            allowed = np.where(value * t > 1.1, 0.0, 3e-7)
        else:
            allowed = np.where(expected < 2.0**-99, 2.0**-99, allowed)
        assert (np.abs(H[:, g] - expected) <= allowed).all()
    assert (H[0, :, 0] == 1.0).all()


@pytest.mark.parametrize("map", ["exponential", "gaussian"])
def test_what_does_not_count_is_zero_and_never_denormal(map):
    H = bumps_of_gammas(map, np.linspace(0.0, 200.0, 5000, dtype=SINGLE)[None], np.array([1.0]))
    assert H[0, 0, -1] == 0.0
    assert H[H > 0].min() >= 2.0**-101


@pytest.mark.parametrize("map", ["exponential", "gaussian"])
def test_bumps_made_of_others_err_little_more_and_are_never_denormal(map):
    """Gammas that are two, four and sixteen times another, in any order."""
    t = np.linspace(0.0, 300.0, 4 * 33, dtype=SINGLE).reshape(4, 33)
    gammas = np.array([4.0, 16.0 / 9.0, 1.0, 4.0 / 9.0, 1.0 / 9.0, 2.0])
    H = bumps_of_gammas(map, t, gammas)
    squared = t.astype(DOUBLE) ** 2 if uses_plain_distance(map) else t.astype(DOUBLE)
    for g, value in enumerate(gammas):
        expected = bumps(map, squared, value)
        allowed = np.where(expected < 2.0**-99, 2.0**-99, 2e-7 * (16.0 + value * t) * expected)
        assert (np.abs(H[:, g] - expected) <= allowed).all()
    assert (H[0, :, 0] == 1.0).all()
    assert H[H > 0].min() >= 2.0**-101


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("map", MAPS)
def test_bumps_of_some_rows_have_the_bits_of_those_of_all(map, dtype):
    t = np.random.default_rng(1).uniform(0.0, 3.0, size=(40, 19)).astype(dtype)
    gammas, rows = np.array([0.3, 0.6, 1.0]), np.array([3, 4, 17, 39])
    np.testing.assert_array_equal(bumps_of_gammas(map, t, gammas, rows), bumps_of_gammas(map, t, gammas)[rows])


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_forms_are_the_squared_lengths_of_the_sums(dtype):
    rng = np.random.default_rng(2)
    V, anchors = rng.normal(size=(3, 2, 11, 6)).astype(dtype), rng.normal(size=(11, 5)).astype(dtype)
    q = np.ones((11, 2))
    add_forms(V, anchors, 0.7, q)
    v, r = V[..., :5].astype(DOUBLE), V[..., 5:].astype(DOUBLE)
    expected = 1.0 + ((v - r * anchors) ** 2).sum(axis=(0, 3)).T + 0.7 * (r[..., 0] ** 2).sum(axis=0).T
    np.testing.assert_allclose(q, expected, rtol=1e-5 if dtype == SINGLE else 1e-12)
