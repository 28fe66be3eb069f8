"""The compiled steps of an epoch over samples on kernels: the Gram matrices of blocks, and SDCA on them.

    K = X X' o (H beta H') - E beta H' - H beta E'        E_im = H_im (<x_i, c_m> - (|c_m|^2 + b) / 2)

See `local_blocks`, which prepares the samples.
"""

from __future__ import annotations

import numba
import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.solver.sdca import step

__all__ = ["BLOCK_ROWS", "block_grams", "visit_blocks"]


BLOCK_ROWS = 48
"""Samples of a block: smaller ones cost calls, larger ones Grams."""


@numba.njit(cache=True, nogil=True)
def _visit(gram: Array, outputs: Array, signs: Array, upper: Array, duals: Array) -> None:
    """SDCA over the samples of a block; `outputs` belong to the block only."""
    for i in range(len(duals)):
        new, _ = step(outputs[i], signs[i], duals[i], gram[i, i], upper[i])
        change = (new - duals[i]) * signs[i]
        if change != 0.0:
            duals[i] = new
            for j in range(len(duals)):
                outputs[j] += change * gram[i, j]


@numba.njit(cache=True, nogil=True)
def block_grams(H: Array, X: Array, anchors: Array, half: Array, weights: Array) -> Array:
    """Gram matrices (blocks, BLOCK_ROWS, BLOCK_ROWS) of the blocks of these samples."""
    n = len(H)
    E = np.dot(X, anchors.T)
    for i in range(n):
        for m in range(len(half)):
            E[i, m] = (E[i, m] - half[m]) * H[i, m]
    grams = np.zeros(((n + BLOCK_ROWS - 1) // BLOCK_ROWS, BLOCK_ROWS, BLOCK_ROWS), H.dtype)
    for number in range(len(grams)):
        start, stop = number * BLOCK_ROWS, min((number + 1) * BLOCK_ROWS, n)
        A, x = H[start:stop] * weights, X[start:stop]
        cross = np.dot(E[start:stop], A.T)
        grams[number, : stop - start, : stop - start] = np.dot(x, x.T) * np.dot(H[start:stop], A.T) - cross - cross.T
    return grams


@numba.njit(cache=True, nogil=True)
def visit_blocks(
    H: Array,
    Z: Array,
    grams: Array,
    weights: Array,
    anchors: Array,
    bias: float,
    signs: Array,
    upper: Array,
    duals: Array,
    sums: Array,
) -> None:
    """SDCA over the samples, block by block; duals and sums change in place."""
    n, d = len(duals), anchors.shape[1]
    table = np.empty_like(sums)
    for number in range(len(grams)):
        start, stop = number * BLOCK_ROWS, min((number + 1) * BLOCK_ROWS, n)
        for m in range(len(table)):  # as `LocalBlocks._table`
            local = bias * sums[m, d]
            for j in range(d):
                local -= sums[m, j] * anchors[m, j]
                table[m, j] = weights[m] * sums[m, j]
            table[m, d] = weights[m] * local
        parts = np.dot(H[start:stop], table)
        outputs, M = np.zeros(stop - start), Z[start:stop].copy()
        for i in range(stop - start):
            for j in range(d + 1):
                outputs[i] += parts[i, j] * M[i, j]
        before = duals[start:stop].copy()
        _visit(grams[number], outputs, signs[start:stop], upper[start:stop], duals[start:stop])
        for i in range(stop - start):
            mass = (duals[start + i] - before[i]) * signs[start + i]
            for j in range(d + 1):
                M[i, j] *= mass
        more = np.dot(H[start:stop].T, M)
        for m in range(len(sums)):
            for j in range(d):
                sums[m, j] += more[m, j] - more[m, d] * anchors[m, j]
            sums[m, d] += more[m, d]
