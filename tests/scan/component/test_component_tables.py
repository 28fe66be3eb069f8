"""The tables of single columns against NumPy: moments of runs, sums of both sides, expansions in boxes."""

from __future__ import annotations

import numpy as np
import pytest

from mllkm_scale.scan.component.expansions import set_chebyshev
from mllkm_scale.scan.component.exponential import ExponentialColumn
from mllkm_scale.scan.component.gaussian import Boxes, BoxShape, GaussianColumn
from mllkm_scale.scan.component.polynomial import PolynomialColumn
from mllkm_scale.scan.component.sizes import (
    COLUMN_BYTES,
    DIRECT_ENTRIES,
    MOST_BOXES,
    N_TERMS,
    REACH,
    Entries,
    run_bits,
    table_bytes,
)

N_CLASSES = 3


def entries_of(column, seed=0, density=1.0):
    rng = np.random.default_rng(seed)
    shape = (len(column), N_CLASSES)
    a = rng.normal(size=shape) * (rng.uniform(size=shape) < density)
    return next(Entries.of([np.asarray(column)], a))


def per_class(entries, terms, chosen):
    """Sums over the chosen entries, for each class."""
    return np.array([np.sum(terms[chosen & (entries.classes == k)]) for k in range(N_CLASSES)])


@pytest.mark.parametrize("density", [0.3, 1.0])
def test_entries_are_the_nonzero_duals_in_the_order_of_the_coordinate(density):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)).astype(np.float32)
    a = rng.normal(size=(40, N_CLASSES)) * (rng.uniform(size=(40, N_CLASSES)) < density)
    for entries, column in zip(Entries.of(X.T, a), X.T, strict=True):
        assert np.all(np.diff(entries.points) >= 0)
        assert entries.points.dtype == np.float64
        for k in range(N_CLASSES):
            rows = np.argsort(column)
            rows = rows[a[rows, k] != 0]
            np.testing.assert_array_equal(entries.points[entries.classes == k], column[rows])
            np.testing.assert_array_equal(entries.duals[entries.classes == k], a[rows, k])


def test_runs_are_longer_where_samples_have_duals_in_several_classes():
    column = np.random.default_rng(0).normal(size=320)
    assert entries_of(column).run_bits("linear", 5) == 4  # three entries a sample
    assert next(Entries.of([column], np.ones((320, 1)))).run_bits("linear", 5) == 3
    assert next(Entries.of([column[:0]], np.ones((0, 1)))).run_bits("linear", 5) == 3


@pytest.mark.parametrize("map", ["exponential", "linear", "squared"])
@pytest.mark.parametrize("n_samples", [0, 1, 100, 10**4, 10**6])
def test_runs_are_as_long_as_the_table_of_a_column_needs(map, n_samples):
    bits = run_bits(map, n_samples, 2 * n_samples, 10, 5)
    assert table_bytes(map, -(-2 * n_samples >> bits), 10, 5) <= COLUMN_BYTES
    if n_samples >= 10**4:
        assert table_bytes(map, -(-2 * n_samples >> (bits - 1)), 10, 5) > COLUMN_BYTES
    else:
        assert bits <= 5


@pytest.mark.parametrize(("map", "powers"), [("linear", 3), ("squared", 4)])
def test_two_rows_of_the_table_are_the_moments_of_all_runs_between_them(map, powers):
    entries = entries_of(np.random.default_rng(1).normal(size=333))
    column = PolynomialColumn.of(entries, np.ones(1), map)
    run_of = np.arange(len(entries.points)) >> column.run_bits
    n_runs = column.moments.shape[1]
    for first in range(n_runs):
        for last in range(first + 1, n_runs):
            level = (first ^ last).bit_length() - 1
            middle = last >> level << level
            assert first < middle <= last
            u = entries.points - entries.points[middle << column.run_bits]
            inside = (run_of >= first) & (run_of <= last)
            found = column.moments[level, first] + column.moments[level, last]
            expected = np.stack([per_class(entries, entries.duals * u**p, inside) for p in range(powers)])
            np.testing.assert_allclose(found.T, expected, rtol=1e-12, atol=1e-12)


def test_sides_are_the_sums_over_all_entries_before_and_from_a_run_on():
    entries = entries_of(np.random.default_rng(2).standard_cauchy(size=150))
    gammas = np.array([0.2, 50.0])
    column = ExponentialColumn.of(entries, gammas)
    place = np.arange(len(entries.points))
    for g, gamma in enumerate(gammas):
        for run in range(column.sides.shape[1]):
            start = run << column.run_bits
            distance = np.abs(entries.points - entries.points[start])
            terms = entries.duals * np.exp(-gamma * distance)
            for side, chosen in ((0, place < start), (2, place >= start)):
                np.testing.assert_allclose(column.sides[g, run, side], per_class(entries, terms, chosen), rtol=1e-12)
                expected = per_class(entries, distance * terms, chosen)
                np.testing.assert_allclose(column.sides[g, run, side + 1], expected, rtol=1e-12, atol=1e-15)


def test_chebyshev_polynomials_are_those_of_numpy():
    T = np.empty(N_TERMS)
    for u in np.linspace(-1, 1, 41):
        set_chebyshev(u, T)
        np.testing.assert_allclose(T, np.polynomial.chebyshev.chebvander(u, N_TERMS - 1)[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("gamma", [1e-12, 0.3, 1.0, 7e8])
def test_products_of_two_boxes_are_the_bump_to_thirteen_digits(gamma):
    shape = BoxShape.of(gamma)
    assert 0.99 < shape.width * np.sqrt(gamma) <= 1.0
    assert (shape.width * (2.0**45 - 1)) / shape.width == 2.0**45 - 1
    u = np.linspace(-1, 1, 33)
    T = np.polynomial.chebyshev.chebvander(u, N_TERMS - 1)
    for offset in range(-REACH, REACH + 1):
        t = shape.width * (offset + 0.5 * (u[:, None] - u))
        found = T @ shape.products[offset + REACH] @ T.T
        assert np.abs(found - np.exp(-gamma * t * t)).max() < 2e-13
    assert np.exp(-gamma * (REACH * shape.width) ** 2) < 1e-20


@pytest.mark.parametrize("column", ["plain", "narrow", "tails"])
@pytest.mark.parametrize("gamma", [1e-6, 0.3, 2.0, 90.0])
def test_sums_of_the_gaussian_keep_their_bound(column, gamma):
    rng = np.random.default_rng(3)
    x = rng.standard_cauchy(900) if column == "tails" else rng.normal(size=900)
    x *= 1e-4 if column == "narrow" else 1.0
    a = rng.normal(size=(900, 1))
    shape = BoxShape.of(gamma)
    made = GaussianColumn.of(next(Entries.of([x], a)), (shape,))
    anchors = np.concatenate([x[:100], x[:100] + 0.3 * shape.width])
    q, r = np.zeros((1, 200)), np.zeros((1, 200, 1))
    made.add(anchors, np.argsort(anchors), q, r)
    t = x.astype(np.longdouble) - anchors[:, None]
    h = np.exp(-np.longdouble(gamma) * t * t)
    in_reach = np.abs(t) <= (REACH + 1) * shape.width
    masses = 1e-12 * np.where(in_reach, np.abs(a[:, 0]), 0.0).sum(axis=1)
    spans = np.minimum(shape.width, np.where(in_reach, np.abs(t), 0.0).max(axis=1))
    beyond = 1e-18 * np.abs(a).sum()
    assert np.all(np.abs(r[0, :, 0] - h @ a[:, 0]) <= masses + beyond)
    assert np.all(np.abs(np.sqrt(q[0]) - np.abs((t * h) @ a[:, 0])) <= masses * spans + beyond * shape.width)


def test_boxes_that_see_few_entries_have_no_expansion():
    shape = BoxShape.of(1.0)
    few = Boxes.of(entries_of(np.zeros(DIRECT_ENTRIES // N_CLASSES)), shape)
    assert len(few.ids) == 0
    enough = Boxes.of(entries_of(np.zeros(DIRECT_ENTRIES // N_CLASSES + 1)), shape)
    np.testing.assert_array_equal(enough.ids, np.arange(-REACH, REACH + 1))
    outlier = Boxes.of(entries_of(np.append(np.zeros(50), 1e6)), shape)
    np.testing.assert_array_equal(outlier.ids, enough.ids)


def test_boxes_with_an_expansion_are_limited_to_those_that_see_most():
    column = np.concatenate([np.repeat(np.arange(1000.0), 20), np.repeat(500.0, 1000)])
    boxes = Boxes.of(entries_of(column), BoxShape.of(1.0))
    assert len(boxes.ids) == MOST_BOXES
    assert {*range(500 - REACH, 501 + REACH)} <= {*boxes.ids.astype(int)}


def test_places_too_far_out_for_exact_borders_are_summed_directly():
    column = np.repeat([1e18, 1e18 + 4096, -3e17], 40)
    made = GaussianColumn.of(entries_of(column), (BoxShape.of(1e-7),))
    assert len(made.boxes[0].ids) == 0
    q, r = np.zeros((1, 1)), np.zeros((1, 1, N_CLASSES))
    made.add(np.array([1e18]), np.zeros(1, np.int64), q, r)
    t = made.entries.points - 1e18
    expected = per_class(made.entries, made.entries.duals * np.exp(-1e-7 * t * t), np.abs(t) < 1e6)
    np.testing.assert_allclose(r[0, 0], expected, rtol=1e-12)
