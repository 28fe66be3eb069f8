"""SDCA for one SVM without bias term (the paper's Algorithm 1): one epoch, on each form of the problem.

    max over 0 <= alpha_i <= C_i:   sum alpha - 1/2 sum_ij alpha_i alpha_j y_i y_j K_ij

Each epoch visits the samples in a given order, skips those that cannot move (the early bail-out), and returns the
largest violation |g| among the others. Outputs yhat_j += delta y_i K_ij are updated for every j.
"""

from __future__ import annotations

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["epoch_orders", "sdca_epoch", "sdca_epoch_features", "step"]


def epoch_orders(n: int, epochs: int, *key: int) -> Array:
    """A random order of the samples for each epoch (epochs, n), keyed by (seed, iteration, ...)."""
    rng = np.random.default_rng(key)
    return np.stack([rng.permutation(n) for _ in range(epochs)])


@numba.njit(cache=True, nogil=True)
def step(output: float, sign: float, dual: float, diagonal: float, C: float) -> tuple[float, float]:
    """New dual of a sample, and its violation; (dual, 0) if the sample is to be skipped."""
    g = 1.0 - sign * output
    if g == 0.0 or (g > 0.0 and dual >= C) or (g < 0.0 and dual <= 0.0):
        return dual, 0.0
    # K_ii = 0 where no kernel reaches the sample: its dual goes to C.
    return max(0.0, min(dual + g / max(diagonal, 1e-300), C)), abs(g)


@numba.njit(cache=True, nogil=True)
def sdca_epoch(gram: Array, signs: Array, upper: Array, order: Array, duals: Array, outputs: Array) -> float:
    """One epoch on a dense Gram matrix; `upper` are the C_i, and `duals` and `outputs` (yhat) are changed in place."""
    worst = 0.0
    for i in order:
        new, violation = step(outputs[i], signs[i], duals[i], gram[i, i], upper[i])
        worst = max(worst, violation)
        change = (new - duals[i]) * signs[i]
        if change != 0.0:
            duals[i] = new
            for j in range(len(outputs)):
                outputs[j] += change * gram[i, j]
    return worst


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def sdca_epoch_features(
    features: Array,
    columns: Array,
    diagonal: Array,
    signs: Array,
    upper: Array,
    order: Array,
    duals: Array,
    sums: Array,
) -> float:
    """One epoch on explicit features (n, p), whose columns have weights; sums = sum_i alpha_i y_i phi_i."""
    worst = 0.0
    for i in order:
        output = 0.0
        for p in range(len(sums)):
            output += features[i, p] * columns[p] * sums[p]
        new, violation = step(output, signs[i], duals[i], diagonal[i], upper[i])
        worst = max(worst, violation)
        change = (new - duals[i]) * signs[i]
        if change != 0.0:
            duals[i] = new
            for p in range(len(sums)):
                sums[p] += change * features[i, p]
    return worst
