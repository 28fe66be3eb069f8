"""The numba loops behind tables against their NumPy twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mllkm_scale.kernels.maps import MAPS
from mllkm_scale.model.tables.additive import compile_additive
from mllkm_scale.model.tables.lookup import bucket
from mllkm_scale.model.tables.sweeps import add_decayed, decay_states, piece_polynomials


def looked_up(tables, Z):
    """The twin of `add_tables`: a search among all edges of a feature, and numpy's polynomials."""
    firsts = np.flatnonzero(np.isneginf(tables.edges))
    F = np.zeros((len(Z), tables.n_machines))
    for l, (first, stop) in enumerate(zip(firsts, [*firsts[1:], tables.cells], strict=True)):
        cells = first + np.searchsorted(tables.edges[first:stop], Z[:, l], side="right") - 1
        origin, factor = tables.variables[cells].T
        x = (Z[:, l] - origin) * factor
        for k in range(tables.n_machines):
            F[:, k] += np.polynomial.polynomial.polyval(x, tables.coefficients[cells, k].T, tensor=False)
    return F


@pytest.mark.parametrize("classes", [(0, 1), (1, 2, 3)])
@pytest.mark.parametrize("map", MAPS)
def test_lookups_find_the_cell_that_a_search_finds(make_model, map, classes):
    tables = compile_additive(make_model(map, True, 0.5, classes, n_kernels=40))
    random = np.random.default_rng(0)
    edges = tables.edges[np.isfinite(tables.edges)]
    at = random.choice(edges, (500, 4))
    Z = np.concatenate(
        [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), random.normal(size=(500, 4)) * 3, 1e300 * at]
    )
    np.testing.assert_allclose(tables.decide(Z), looked_up(tables, Z), rtol=0, atol=1e-13)


@given(
    st.floats(-1e308, 1e308), st.floats(-1e308, 1e308), st.floats(-100, 100), st.floats(0, 1e300), st.integers(1, 1000)
)
def test_buckets_never_fall_when_the_value_grows(t, other, low, scale, n_buckets):
    first, second = (bucket(value, low, scale, n_buckets) for value in sorted((t, other)))
    assert 0 <= first <= second <= n_buckets - 1
    assert bucket(np.nan, low, scale, n_buckets) == 0
    assert bucket(-np.inf, low, scale or 1.0, n_buckets) == 0


def test_decayed_sums_are_those_over_all_anchors_to_the_left():
    random = np.random.default_rng(0)
    anchors = np.sort(random.normal(size=50))
    anchors[10] = anchors[11]
    a, b = random.normal(size=(2, 50, 3))
    points = np.concatenate([random.normal(size=40) * 2, anchors[:20], [-100.0, 100.0]])
    P, Q = np.empty((2, 50, 3))
    for gamma in (1e-3, 1.0, 1e3):
        decay_states(anchors, gamma, a, b, P, Q)
        sums = np.ones((len(points), 3))
        add_decayed(points, np.searchsorted(anchors, points, side="right") - 1, anchors, gamma, P, Q, sums)
        u = points[:, None] - anchors
        H = np.where(u >= 0, np.exp(-gamma * np.abs(u)), 0.0)
        np.testing.assert_allclose(sums, 1.0 + (H * u) @ a + H @ b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("degree", [2, 3])
def test_running_polynomials_are_the_sums_of_those_between_their_ends(degree):
    """Events of kernels whose polynomials are 1e12 times as large as what is left when they have gone."""
    random = np.random.default_rng(0)
    edges = np.sort(random.uniform(50, 60, 21))
    joins, leaves = np.sort(random.integers(0, 21, (2, 30)), axis=0)
    anchors, bends = random.uniform(50, 60, 30), random.normal(size=30) * 10.0 ** random.uniform(0, 12, 30)
    slopes, levels = random.normal(size=(2, 30, 2))
    places, kernels = np.concatenate([joins, leaves]), np.tile(np.arange(30), 2)
    signs = np.repeat([1.0, -1.0], 30)
    order = np.argsort(places, kind="stable")
    found = np.empty((20, degree + 1, 2))
    work, running = np.zeros((2, degree + 1, 2)), np.zeros((2, degree + 1, 2))
    piece_polynomials(
        edges, places[order], kernels[order], bends[kernels][order], signs[order],
        anchors, slopes, levels, work, running, found,
    )  # fmt: skip
    x = np.linspace(-1, 1, 7)
    for j in range(20):
        t = 0.5 * (edges[j] + edges[j + 1]) + 0.5 * (edges[j + 1] - edges[j]) * x
        inside = (joins <= j) & (j < leaves)
        u = t[:, None] - anchors[inside]
        H = 1.0 + bends[inside] * u ** (degree - 1)
        expected = (H * u) @ slopes[inside] + H @ levels[inside]
        size = np.abs(H * u) @ np.abs(slopes[inside]) + np.abs(H) @ np.abs(levels[inside])
        values = np.polynomial.polynomial.polyval(x, found[j]).T
        assert (np.abs(values - expected) <= 1e-13 * (size.max(axis=0) + 1e-3)).all()
