"""Quantile columns: ranks within the stated error of a sketch, and columns that are what they are called."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mllkm_scale.base.executor import ThreadExecutor
from mllkm_scale.base.threads import Threads
from mllkm_scale.data import Dataset, Preprocessor, fit_scaling
from mllkm_scale.data.preparation.quantile_sketch import QuantileSketch, buffer_rows, gather_quantiles, sketch_bytes
from mllkm_scale.data.preparation.quantiles import MOST_KNOTS, Quantiles, choose_knots, mid_levels
from mllkm_scale.data.preparation.scaling import ALIKE, QUANTILE_SCALINGS
from mllkm_scale.errors import DataError


def ranks_below(values: np.ndarray, weights: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.array([weights[values < point].sum() for point in points])


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 700),
    k=st.sampled_from([2, 4, 8, 16]),
    distinct=st.sampled_from([1, 2, 9, 10**6]),
    cuts=st.integers(1, 9),
    ordered=st.booleans(),
)
def test_ranks_are_within_the_stated_error(seed, n, k, distinct, cuts, ordered):
    random = np.random.default_rng(seed)
    X = random.integers(0, distinct, size=(n, 2)).astype(float)
    X = np.sort(X, axis=0) if ordered else X
    sketch = QuantileSketch(2, k)
    for number, rows in enumerate(np.array_split(X, cuts)):
        if len(rows):
            part = QuantileSketch(2, k, phase=number % 2)
            for piece in np.array_split(rows, min(3, len(rows))):
                part.update(piece)
            sketch.merge(part)
    heights = len(sketch.halvings)
    assert sketch.count == n
    assert sketch.rank_error <= n * heights / (2 * k)
    assert (sketch.low == X.min(axis=0)).all()
    assert (sketch.high == X.max(axis=0)).all()
    for j in range(2):
        values, weights = sketch.sample(j)
        assert weights.sum() == n
        assert set(values) <= set(X[:, j])
        points = np.unique(X[:, j]) + 0.5
        exact = ranks_below(X[:, j], np.ones(n), points)
        assert np.abs(ranks_below(values, weights, points) - exact).max() <= sketch.rank_error
    if n < 2 * k:
        assert sketch.rank_error == 0


def test_alternation_halves_the_error():
    sketch = QuantileSketch(1, 8)
    sketch.update(np.random.default_rng(0).normal(size=(8 * 256, 1)))
    assert len(sketch.halvings) == 9
    assert sketch.rank_error <= 8 * 256 * 8 / (4 * 8) + 2**8


def test_a_pass_takes_no_more_memory_than_the_plan_counts():
    for n, d in [(100, 3), (50_000, 20), (20_000, 700)]:
        X = np.random.default_rng(0).normal(size=(n, d))
        tracemalloc.start()
        gather_quantiles(Dataset.from_arrays(X))
        assert tracemalloc.get_traced_memory()[1] <= sketch_bytes(n, d, 1)
        tracemalloc.stop()
    assert sketch_bytes(10**6, 5000, 1) < 120_000_000
    assert sketch_bytes(10**6, 5000, 2) > sketch_bytes(10**6, 5000, 1)
    assert buffer_rows(10**5) >= 64


@pytest.mark.parametrize("kind", QUANTILE_SCALINGS)
def test_bits_do_not_depend_on_threads(kind):
    X = np.random.default_rng(0).lognormal(size=(9000, 3))
    data = Dataset.from_arrays(X, chunk_rows=100)
    alone = fit_scaling(data, kind)
    with Threads(3) as threads:
        together = fit_scaling(data, kind, ThreadExecutor(threads))
    for name in ("offset", "factor", "columns", "centres"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))
    np.testing.assert_array_equal(together.quantiles.values, alone.quantiles.values)
    np.testing.assert_array_equal(together.quantiles.levels, alone.quantiles.levels)


def test_levels_are_the_middle_ranks_of_ties():
    distinct, levels = mid_levels(np.array([2.0, 1.0, 2.0, 2.0, 4.0]), np.ones(5))
    np.testing.assert_array_equal(distinct, [1, 2, 4])
    np.testing.assert_allclose(levels, [0.1, 0.5, 0.9])


@settings(max_examples=50)
@given(seed=st.integers(0, 1000), n=st.integers(1, 400), distinct=st.integers(1, 300))
def test_knots_are_few_rise_and_keep_both_ends(seed, n, distinct):
    values = np.random.default_rng(seed).integers(0, distinct, n) / 7
    all_values, all_levels = mid_levels(values, np.ones(n))
    knots, levels = choose_knots(all_values, all_levels)
    assert len(knots) <= MOST_KNOTS
    assert (np.diff(knots) > 0).all()
    assert (np.diff(levels) > 0).all()
    assert (knots[0], knots[-1]) == (values.min(), values.max())
    if len(all_values) <= MOST_KNOTS:
        np.testing.assert_array_equal(knots, all_values)


def test_a_quantile_column_is_the_empirical_distribution():
    X = np.random.default_rng(0).lognormal(size=(3000, 1), sigma=3.0)
    scaling = fit_scaling(Dataset.from_arrays(X), "quantile")
    shares = scaling.apply(X)[:, 0] / scaling.factor[0] + scaling.offset[0]
    exact = (np.argsort(np.argsort(X[:, 0])) + 0.5) / len(X)
    assert np.abs(shares - exact).max() <= 1 / MOST_KNOTS
    np.testing.assert_allclose(scaling.apply(X * 1e9).max(), scaling.apply(X).max())  # constant beyond the knots


def test_quantile_columns_have_mean_zero_and_variance_one_with_ties_too():
    random = np.random.default_rng(0)
    X = np.column_stack([random.poisson(0.2, 2000), random.lognormal(size=2000), random.integers(0, 2, 2000)])
    Z = fit_scaling(Dataset.from_arrays(X), "quantile").apply(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=1e-12)


def columns_of_every_kind(n: int = 4000) -> np.ndarray:
    """Normal, heavy-tailed, two values, even, constant, counts."""
    random = np.random.default_rng(0)
    return np.column_stack([
        random.normal(size=n),
        random.lognormal(size=n, sigma=2),
        random.integers(0, 2, n),
        random.uniform(size=n),
        np.full(n, 0.1),
        random.poisson(3, n),
    ])  # fmt: skip


def test_side_by_side_leaves_out_columns_that_would_be_the_same_again():
    X = columns_of_every_kind()
    data = Dataset.from_arrays(X)
    both, auto = fit_scaling(data, "standard+quantile"), fit_scaling(data, "auto")
    assert both.columns.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 3, 5]
    standard = fit_scaling(data, "standard")
    np.testing.assert_array_equal(both.apply(X)[:, :6], standard.apply(X))
    Z = both.apply(X)
    alike = [abs(np.corrcoef(Z[:, j], Z[:, both.columns[j]])[0, 1]) > ALIKE for j in range(6, 10)]
    assert alike == [False, False, True, alike[3]]
    assert auto.columns[6:].tolist() == [j for j, same in zip(both.columns[6:], alike, strict=True) if not same]


def test_auto_is_standard_where_quantiles_say_nothing_new():
    X = np.random.default_rng(0).uniform(size=(500, 2))
    scaling = fit_scaling(Dataset.from_arrays(X), "auto")
    assert scaling.quantiles is None
    np.testing.assert_array_equal(scaling.apply(X), fit_scaling(Dataset.from_arrays(X), "standard").apply(X))


@pytest.mark.parametrize("kind", QUANTILE_SCALINGS)
def test_a_constant_feature_stays_finite(kind):
    X = np.full((50, 2), 0.1)
    X[:, 1] = np.arange(50) * 1e-300  # so near to one another that no slope holds them
    Z = fit_scaling(Dataset.from_arrays(X), kind).apply(np.array([[0.1, 0.0], [5.0, 3.0], [-1.0, -1.0]]))
    assert np.isfinite(Z).all()


@pytest.mark.parametrize("kind", QUANTILE_SCALINGS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_columns_that_are_not_finite_are_named(kind, bad):
    X = np.zeros((5, 3))
    X[2, 1] = bad
    with pytest.raises(DataError, match=r"X: column 1 \(0-based\)"):
        fit_scaling(Dataset.from_arrays(X, chunk_rows=2), kind)


@pytest.mark.parametrize("kind", QUANTILE_SCALINGS)
def test_rows_of_the_data_come_back(kind):
    X = columns_of_every_kind(300)
    preprocessor = Preprocessor.fit(Dataset.from_arrays(X), kind)
    np.testing.assert_allclose(preprocessor.invert(preprocessor.transform(X)), X, rtol=1e-9, atol=1e-9)


def test_each_row_depends_on_itself_alone():
    X = columns_of_every_kind(700)
    scaling = fit_scaling(Dataset.from_arrays(X), "standard+quantile")
    whole = scaling.apply(X)
    np.testing.assert_array_equal(np.concatenate([scaling.apply(row[None]) for row in X]), whole)


def test_slopes_are_those_between_knots():
    quantiles = Quantiles.of([(np.empty(0), np.empty(0)), (np.array([0.0, 2.0, 3.0]), np.array([0.0, 0.5, 1.0]))])
    assert quantiles.slopes.tolist() == [0.25, 0.5, 0.0]
    assert quantiles.mapped.tolist() == [False, True]
    assert quantiles.take(np.array([1])).starts.tolist() == [0, 3]
