"""Local coordinate codings: a sample as a convex combination of its nearest anchors, gamma(x).

    gamma_v(x) = s_v(x) / sum_u s_u(x)  over the n_nearest anchors u of x, 0 for the others

    inverse_distance:  s_v(x) = 1 / |x - v|                            (Ladicky and Torr 2011)
    kernel_codebook:   s_v(x) = exp(-|x - v|^2 / (2 bandwidth^2))      (van Gemert et al. 2008)

A coding is kept as two arrays (n, n_nearest): which anchors, and their coordinates, which sum to one.
"""

from __future__ import annotations

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["CODINGS", "automatic_bandwidth", "coordinates", "nearest_anchors"]


CODINGS = ("inverse_distance", "kernel_codebook")
ROWS = 2048  # of a block: its inner products with the anchors stay in the cache


def nearest_anchors(X: Array, anchors: Array, n_nearest: int) -> tuple[Array, Array]:
    """The nearest anchors of each row (n, n_nearest), and their squared distances.

    >>> chosen, squares = nearest_anchors(np.array([[0.9]]), np.array([[0.0], [1.0], [3.0]]), 2)
    >>> chosen.tolist(), squares.round(2).tolist()
    ([[1, 0]], [[0.01, 0.81]])
    """
    chosen = np.empty((len(X), n_nearest), dtype=np.intp)
    squares = np.empty((len(X), n_nearest))
    norms = np.einsum("ij,ij->i", anchors, anchors)
    for start in range(0, len(X), ROWS):
        rows = slice(start, start + ROWS)
        # |x - v|^2 without |x|^2, which is the same for all anchors.
        select_smallest(norms - 2.0 * (X[rows] @ anchors.T), chosen[rows], squares[rows])
        measure_distances(X[rows], anchors, chosen[rows], squares[rows])
    return chosen, squares


def coordinates(squares: Array, coding: str, bandwidth: float) -> Array:
    """gamma(x) of the nearest anchors, from their squared distances; `bandwidth` is the kernel codebook's."""
    closest = squares.min(axis=1, keepdims=True)
    # Both codings are relative to the closest anchor, so that nothing divides by zero or underflows in every place:
    # a sample that is an anchor gets the coordinate 1 there by the inverse distance.
    if coding == "inverse_distance":
        shares = np.sqrt(np.divide(closest, squares, out=np.ones_like(squares), where=squares > closest))
    else:
        shares = np.exp((closest - squares) / (2.0 * bandwidth**2))
    return shares / shares.sum(axis=1, keepdims=True)


def automatic_bandwidth(squares: Array) -> float:
    """The spread of the nearest anchors: the mean over the rows of sqrt(farthest^2 - closest^2), halved.

    The farthest of the nearest anchors then weighs about exp(-2) of the closest: neither a hard assignment nor a
    plain mean, whatever a high dimension adds to all squared distances alike.
    """
    spread = float(np.sqrt(squares.max(axis=1) - squares.min(axis=1)).mean()) / 2.0
    return spread if spread > 0.0 else 1.0


@numba.njit(cache=True, nogil=True)
def select_smallest(values: Array, chosen: Array, smallest: Array) -> None:
    """The positions of the smallest values of each row, in their order, by insertion."""
    kept = chosen.shape[1]
    for i in range(len(values)):
        filled = 0
        for a in range(values.shape[1]):
            value = values[i, a]
            if filled == kept and value >= smallest[i, kept - 1]:
                continue
            place = min(filled, kept - 1)
            while place > 0 and smallest[i, place - 1] > value:
                smallest[i, place] = smallest[i, place - 1]
                chosen[i, place] = chosen[i, place - 1]
                place -= 1
            smallest[i, place] = value
            chosen[i, place] = a
            filled = min(filled + 1, kept)


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def measure_distances(X: Array, anchors: Array, chosen: Array, squares: Array) -> None:
    """|x - v|^2 of the chosen anchors from the differences: by norms and products it would lose what is small."""
    for i in range(len(X)):
        for j in range(chosen.shape[1]):
            a = chosen[i, j]
            total = 0.0
            for l in range(X.shape[1]):
                difference = X[i, l] - anchors[a, l]
                total += difference * difference
            squares[i, j] = total
