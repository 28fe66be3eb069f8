"""Unit trace (F9): each kernel is divided by its mean diagonal over a sample of the training rows.

A kernel that reaches almost no sample would be blown up by the division; it is excluded instead (scale 0). Reach is the
effective number of samples in the diagonal, (sum u)^2 / sum u^2 with u_i = k_m(x_i, x_i).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.grid import Family, RowSource

__all__ = ["MIN_REACH", "REFERENCE_ROWS", "trace_scales"]

Array = NDArray[Any]

MIN_REACH = 5.0
REFERENCE_ROWS = 4096
"""At most so many training rows are the sample over which the mean diagonal is taken."""


def trace_scales(family: Family, anchors: RowSource, gammas: Array, reference: Array) -> Array:
    """1 / mean diagonal of every kernel of the grid, (anchors, gammas); 0 where its reach is below MIN_REACH."""
    least_reach = min(MIN_REACH, 0.5 * len(reference))
    reference = reference.astype(np.float64)
    scales = np.zeros((anchors.n_rows, len(gammas)))
    height = max(1, (4 << 20) // (8 * len(reference) * (reference.shape[1] if family.componentwise else 1)))
    for start, chunk in anchors.chunks():
        for first in range(0, len(chunk), height):
            block = chunk[first : first + height].astype(np.float64)
            for g, gamma in enumerate(gammas):
                diagonals = family.kernels(block, np.full(len(block), gamma)).diagonals(reference)
                total, squares = diagonals.sum(axis=0), np.einsum("ij,ij->j", diagonals, diagonals)
                reaches = total * total > least_reach * squares
                rows = slice(start + first, start + first + len(block))
                scales[rows, g] = np.divide(len(reference), total, where=reaches, out=np.zeros(len(block)))
    return scales
