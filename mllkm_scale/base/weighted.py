"""Means over rows with weights; if all weights are one, they have the bits of unweighted means."""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["effective_rows", "unit_weights", "weighted_mean"]


def unit_weights(n: int) -> Array:
    """Weights of one for n rows, without memory for each."""
    return np.broadcast_to(1.0, n)


def weighted_mean(values: Array, weights: Array) -> float:
    """sum_i w_i v_i / sum_i w_i.

    >>> weighted_mean(np.array([1.0, 4.0]), np.array([2.0, 1.0]))
    2.0
    """
    return float((weights * values).sum() / weights.sum())


def effective_rows(weights: Array) -> float:
    """(sum w)^2 / sum w^2: the number of equal rows that would give a mean of the same precision.

    >>> effective_rows(np.ones(3)), effective_rows(np.array([1.0, 0.0, 0.0]))
    (3.0, 1.0)
    """
    return float(weights.sum() ** 2 / np.square(weights).sum())
