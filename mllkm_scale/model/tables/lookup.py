"""Rows evaluated by tables: the numba loop of an additive model.

A table is a list of cells. A cell begins at its edge, the first one at minus infinity, and ends at the next edge. It
holds a polynomial for each class, in the same variable:

    f_kl(t) = c_k0 + c_k1 x + c_k2 x^2 + ...        x = (t - origin) factor

A guide of equal buckets over the range of the anchors gives the few cells in which t can be: bucket j holds the cells
guide[j] to guide[j + 1]. A binary search finds the cell among them.
"""

from __future__ import annotations

import numba

from mllkm_scale.base.arrays import Array

__all__ = ["add_tables", "bucket"]


@numba.njit(cache=True, nogil=True)
def bucket(t: float, low: float, scale: float, n_buckets: int) -> int:
    """The bucket of t, a non-decreasing function of t; the first one for NaN."""
    place = (t - low) * scale
    if place >= n_buckets - 1:
        return n_buckets - 1
    return int(place) if place > 0.0 else 0


@numba.njit(cache=True, nogil=True)
def add_tables(
    Z: Array,
    guide_starts: Array,
    spans: Array,
    guide: Array,
    edges: Array,
    variables: Array,
    coefficients: Array,
    F: Array,
) -> None:
    """F (n, K) += sum_l f_kl(Z[:, l]).

    The guide of feature l is guide_starts[l] to guide_starts[l + 1]; `spans` (d, 2) holds the beginning of its buckets,
    and their number per unit. `variables` (cells, 2) are origin and factor, and `coefficients` (cells, K, degree + 1).

    Features are added in order, so that the sum of a row does not depend on other rows. All rows use one table before
    the next, so that the table stays in the cache.
    """
    n_rows, n_machines = F.shape
    degree = coefficients.shape[2] - 1
    for l in range(len(spans)):
        low, scale = spans[l, 0], spans[l, 1]
        n_buckets = guide_starts[l + 1] - guide_starts[l] - 1
        for i in range(n_rows):
            t = Z[i, l]
            j = guide_starts[l] + bucket(t, low, scale, n_buckets)
            cell, left = guide[j], guide[j + 1] - guide[j] + 1
            while left > 1:
                half = left >> 1
                if edges[cell + half] <= t:
                    cell += half
                left -= half
            x = (t - variables[cell, 0]) * variables[cell, 1]
            c = coefficients[cell]
            if degree == 2:
                for k in range(n_machines):
                    F[i, k] += c[k, 0] + x * (c[k, 1] + x * c[k, 2])
            elif degree == 3:
                for k in range(n_machines):
                    F[i, k] += c[k, 0] + x * (c[k, 1] + x * (c[k, 2] + x * c[k, 3]))
            else:
                for k in range(n_machines):
                    high = c[k, 3] + x * (c[k, 4] + x * c[k, 5])
                    F[i, k] += c[k, 0] + x * (c[k, 1] + x * (c[k, 2] + x * high))
