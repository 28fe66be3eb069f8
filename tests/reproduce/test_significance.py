"""Paired tests over splits, and ranks over data sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats

from mllkm_scale.reproduce.significance import corrected_t_test, holm, paired_test, ranks, wilcoxon


def signed_rank_p_value(d: np.ndarray) -> float:
    """By counting: the share of all choices of signs whose rank sum is as far from its mean as the one seen."""
    d = d[d != 0]
    places = stats.rankdata(np.abs(d))
    seen = abs(places[d > 0].sum() - places.sum() / 2)
    sums = np.array([places[np.array(signs)].sum() for signs in itertools.product([False, True], repeat=len(d))])
    return float(np.mean(np.abs(sums - places.sum() / 2) >= seen - 1e-9))


@given(st.lists(st.integers(-4, 4), min_size=3, max_size=8))
@hypothesis_settings(max_examples=25)
def test_signed_ranks_agree_with_counting_also_with_ties_and_zeros(values: list[int]) -> None:
    d = np.array(values, dtype=float)
    expected = signed_rank_p_value(d) if d.any() else 1.0
    assert wilcoxon(d) == pytest.approx(expected, abs=1e-12)


def test_many_splits_use_the_normal_approximation() -> None:
    d = np.random.default_rng(0).normal(0.5, 1.0, 40)
    assert wilcoxon(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, abs=0.003)


def test_the_correction_makes_the_t_test_stricter_and_without_test_rows_it_is_the_plain_one() -> None:
    d = np.random.default_rng(1).normal(0.8, 1.0, 10)
    plain = stats.ttest_1samp(d, 0.0).pvalue
    assert corrected_t_test(d, 0.0) == pytest.approx(plain)
    assert corrected_t_test(d, 0.3) > plain


def test_the_corrected_test_holds_its_level_where_the_plain_one_does_not() -> None:
    # Two methods of equal worth, each right or wrong on every row once and for all: only the test rows vary.
    rng = np.random.default_rng(2)
    plain, corrected, trials = 0, 0, 200
    for _ in range(trials):
        first, second = rng.random(60) < 0.6, rng.random(60) < 0.6
        tests = [rng.permutation(60)[:18] for _ in range(10)]
        d = np.array([first[rows].mean() - second[rows].mean() for rows in tests])
        plain += stats.ttest_1samp(d, 0.0).pvalue < 0.05
        corrected += corrected_t_test(d, 0.3) < 0.05
    assert plain > 0.3 * trials
    assert corrected < 0.5 * plain


def test_a_method_does_not_differ_from_itself() -> None:
    accuracies = np.array([90.0, 91.5, 92.0])
    same = paired_test(accuracies, accuracies, 0.3)
    assert (same.difference, same.wilcoxon_p, same.corrected_t_p) == (0.0, 1.0, 1.0)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
@hypothesis_settings(max_examples=25)
def test_holms_values_are_between_the_plain_ones_and_bonferronis(values: list[float]) -> None:
    p = np.array(values)
    corrected = holm(p)
    assert np.all(corrected >= np.minimum(p, 1.0) - 1e-12)
    assert np.all(corrected <= np.minimum(1.0, len(p) * p) + 1e-12) or np.all(np.diff(np.sort(corrected)) >= 0)
    assert np.array_equal(np.argsort(corrected[np.argsort(p)], kind="stable"), np.arange(len(p)))


def test_ranks_and_critical_difference_are_those_of_demsars_example() -> None:
    # Demsar 2006, table 6: 14 data sets, four classifiers, mean ranks 3.143, 2.000, 2.893, 1.964, and CD = 1.25.
    # (0.9751 stands for the 0.975 that he ranks before another 0.975.)
    table = np.array(
        [
            [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
            [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
            [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
            [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
            [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
        ]
    )  # fmt: skip
    found = ranks(table)
    assert found.mean == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    assert found.critical_difference == pytest.approx(1.25, abs=0.01)
    assert found.friedman_p == pytest.approx(0.025, abs=0.01)
