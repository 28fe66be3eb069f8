"""Rows evaluated by tables: the numba loop of an additive model.

A table is a list of cells: cell j begins at edges[j], the first at minus infinity, and ends where the next begins.
Its record holds a polynomial for each of the K classes in the same variable,

    record  = origin, factor, c_0 (K numbers), c_1 (K numbers), ...        x = (t - origin) factor
    f_kl(t) = c_0k + c_1k x + c_2k x^2 + ...
"""

from __future__ import annotations

from typing import Any

import numba
from numpy.typing import NDArray

__all__ = ["add_tables"]

Array = NDArray[Any]


@numba.njit(cache=True, nogil=True)
def _cell(edges: Array, first: int, n_cells: int, t: float) -> int:
    """The last cell that begins at t or before; the first one for NaN."""
    cell, left = first, n_cells
    while left > 1:
        half = left >> 1
        if edges[cell + half] <= t:
            cell += half
        left -= half
    return cell


@numba.njit(cache=True, nogil=True)
def add_tables(Z: Array, starts: Array, edges: Array, records: Array, F: Array) -> None:
    """F (n, K) += sum_l f_kl(Z[:, l]); the cells of feature l are starts[l] to starts[l + 1].

    Features in order, so that a row's sum does not depend on the rows beside it; all rows by one table, so that the
    table stays in the cache.
    """
    n_rows, n_machines = F.shape
    width = records.shape[1]
    for l in range(len(starts) - 1):
        first, n_cells = starts[l], starts[l + 1] - starts[l]
        for i in range(n_rows):
            t = Z[i, l]
            record = records[_cell(edges, first, n_cells, t)]
            x = (t - record[0]) * record[1]
            if n_machines == 1:
                value = record[width - 1]
                for q in range(width - 2, 1, -1):
                    value = value * x + record[q]
                F[i, 0] += value
            else:
                power = 1.0
                for q in range(2, width, n_machines):
                    for k in range(n_machines):
                        F[i, k] += power * record[q + k]
                    power *= x
