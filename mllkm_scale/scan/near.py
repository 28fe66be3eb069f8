"""Sums over the rows within reach of an anchor, for the maps that vanish beyond a radius.

A matrix product covers all rows, including those whose bump is zero. If few bumps are nonzero, the rows within reach of
each anchor are listed, and V = sum_i h_i a_i [x_i, 1] is summed over the lists. At one anchor, a wider kernel reaches
every row that a narrower one reaches. So the lists are built for the widest gamma, and narrowed from gamma to gamma.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["add_near", "count_near", "near_share"]


def near_share(n_features: int) -> float:
    """Largest share of nonzero bumps for which lists are faster than a product.

    Measured for one and ten classes and one and four gammas: 0.02 to 0.09 with 10 features, 0.07 to 0.12 with 50 and
    0.25 to 0.3 with 784 in single precision, and somewhat more in double precision.
    """
    return 0.3 * (n_features + 20) / (n_features + 150)


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def count_near(t: Array, gammas: Array, most: int, counts: Array) -> int:
    """How many of the gammas, widest first, have more than `most` nonzero bumps.

    For the others, `counts` (gammas, anchors) are the rows within reach of each anchor; t is a result of `distances`.
    """
    one = t.dtype.type(1.0)
    for g in range(len(gammas) - 1, -1, -1):
        gamma, within = gammas[g], counts[g]
        within[:] = 0
        for i in range(len(t)):
            row = t[i]
            for j in range(row.size):
                within[j] += np.int32(gamma * row[j] < one)
        if within.sum() > most:
            return g + 1
    return 0


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def add_near(
    X: Array, duals: Array, t: Array, gammas: Array, wide: int, counts: Array, rows: Array, reach: Array, V: Array
) -> None:
    """Add sum_i h_i a_ik [x_i, 1] to V (K, gammas, anchors, d + 1), for all gammas but the first `wide`.

    `counts` come from `count_near`; `rows` and `reach` are buffers for the lists: rows, and the t of each.
    """
    one = t.dtype.type(1.0)
    ends = _list_near(t, gammas[wide], counts[wide], rows, reach)
    picked, masses = np.empty(len(X), rows.dtype), np.empty(len(X), X.dtype)
    for j in range(len(ends)):
        start, end = ends[j] - counts[wide, j], ends[j]
        for g in range(wide, len(gammas)):
            gamma = gammas[g]
            if g > wide:
                end = _narrow(gamma, start, end, rows, reach)
            for k in range(duals.shape[1]):
                n = 0
                for e in range(start, end):
                    a = duals[rows[e], k]
                    picked[n] = rows[e]
                    masses[n] = a * (one - gamma * reach[e])
                    n += int(a != 0.0)
                _add_rows(X, picked[:n], masses[:n], V[k, g, j])


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _list_near(t: Array, gamma: Any, counts: Array, rows: Array, reach: Array) -> Array:
    """Fill the lists of all anchors, one after the other, and return their ends."""
    one = t.dtype.type(1.0)
    ends = np.cumsum(counts) - counts
    for i in range(len(t)):
        row = t[i]
        for j in range(row.size):
            if gamma * row[j] < one:
                rows[ends[j]] = i
                reach[ends[j]] = row[j]
                ends[j] += 1
    return ends


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _narrow(gamma: Any, start: int, end: int, rows: Array, reach: Array) -> int:
    """Keep the rows of a list that this gamma reaches; return the new end."""
    one = reach.dtype.type(1.0)
    kept = start
    for e in range(start, end):
        distance = reach[e]
        rows[kept], reach[kept] = rows[e], distance
        kept += int(gamma * distance < one)
    return kept


@numba.njit(cache=True, nogil=True, fastmath={"contract"})
def _add_rows(X: Array, rows: Array, masses: Array, v: Array) -> None:
    """Add sum_e masses_e [x_e, 1] to v (d + 1,), four rows at a time, which read and write v only once."""
    d, n = X.shape[1], len(rows)
    v[d] += masses.sum()
    whole = n - n % 4
    for e in range(0, whole, 4):
        x0, x1, x2, x3 = X[rows[e]], X[rows[e + 1]], X[rows[e + 2]], X[rows[e + 3]]
        m0, m1, m2, m3 = masses[e], masses[e + 1], masses[e + 2], masses[e + 3]
        for l in range(d):
            v[l] += (m0 * x0[l] + m1 * x1[l]) + (m2 * x2[l] + m3 * x3[l])
    for e in range(whole, n):
        x, m = X[rows[e]], masses[e]
        for l in range(d):
            v[l] += m * x[l]
