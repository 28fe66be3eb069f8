"""Are differences of mean accuracy over random splits significant? Paired tests, and ranks over data sets.

Splits of one data set share samples, so their differences d_1 ... d_k are not independent: the plain t-test and
Wilcoxon's signed ranks find too much. The corrected resampled t-test (Nadeau & Bengio 2003) counts the overlap,

    t = mean(d) / sqrt((1/k + n_test/n_train) var(d)),       k - 1 degrees of freedom

Ranks over data sets (Demsar 2006): Friedman's test says whether the methods differ at all; two of them do if their mean
ranks differ by more than the critical difference of Nemenyi's test,

    CD = q_alpha sqrt(m (m + 1) / (6 N)),     m methods, N data sets, q_alpha the studentised range over sqrt(2)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from mllkm_scale.base.arrays import Array

__all__ = ["PairedTest", "Ranks", "corrected_t_test", "holm", "paired_test", "ranks", "wilcoxon"]


@dataclass(frozen=True)
class PairedTest:
    """Mean difference of two methods over the same splits, and the p-values of both tests."""

    difference: float
    wilcoxon_p: float
    corrected_t_p: float


@dataclass(frozen=True)
class Ranks:
    """Mean rank of each method (1 is best), Friedman's p-value, and the critical difference of two mean ranks."""

    mean: Array
    friedman_p: float
    critical_difference: float


def paired_test(first: Array, second: Array, test_share: float) -> PairedTest:
    """Compare two methods by their accuracies on the same splits; `test_share` is the share of samples for testing."""
    d = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    return PairedTest(float(d.mean()), wilcoxon(d), corrected_t_test(d, test_share))


def wilcoxon(differences: Array) -> float:
    """Two-sided p-value of Wilcoxon's signed ranks; zeros are left out, and it is 1 where fewer than two are not zero.

    >>> wilcoxon(np.array([0.5, 1.0, 1.5, 2.0, 2.5]))
    0.0625
    """
    d = differences[differences != 0]
    if len(d) < 2:
        return 1.0
    # Tied ranks have no exact table: every choice of signs is as likely as any other.
    if len(d) <= 13:
        return float(stats.wilcoxon(d, method=stats.PermutationMethod(n_resamples=2 ** len(d))).pvalue)
    return float(stats.wilcoxon(d, method="approx").pvalue)


def corrected_t_test(differences: Array, test_share: float) -> float:
    """Two-sided p-value of the corrected resampled t-test; 1 where all differences are zero.

    >>> round(corrected_t_test(np.array([0.5, 1.0, 1.5, 2.0, 2.5]), 0.3), 4)
    0.0749
    """
    d, k = np.asarray(differences, dtype=np.float64), len(differences)
    variance = (1.0 / k + test_share / (1.0 - test_share)) * d.var(ddof=1)
    if variance == 0.0:
        return 1.0 if d.mean() == 0.0 else 0.0
    return float(2.0 * stats.t.sf(abs(d.mean()) / np.sqrt(variance), k - 1))


def holm(p_values: Array) -> Array:
    """p-values corrected for their number by Holm's step-down method, in the order given.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factors * np.asarray(p_values)[order]))
    return corrected


def ranks(accuracies: Array, alpha: float = 0.05) -> Ranks:
    """Ranks of methods from their mean accuracies, an array (data sets, methods); ties share their mean rank."""
    accuracies = np.asarray(accuracies, dtype=np.float64)
    N, m = accuracies.shape
    places = stats.rankdata(-accuracies, axis=1)
    friedman_p = float(stats.friedmanchisquare(*accuracies.T).pvalue) if m > 2 else float("nan")
    q = stats.studentized_range.ppf(1.0 - alpha, m, np.inf) / np.sqrt(2.0)
    return Ranks(places.mean(axis=0), friedman_p, float(q * np.sqrt(m * (m + 1) / (6.0 * N))))
