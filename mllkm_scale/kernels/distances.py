"""Distances of rows to anchors, computed in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["ROUNDING", "ROW_BLOCK", "row_blocks", "squared_distances"]

ROW_BLOCK = 1024  # rows whose bumps are in memory at once
ROUNDING = 8.0  # units in the last place of |x|^2 + |c|^2 that a squared distance may be off


def row_blocks(n: int) -> Iterator[slice]:
    """Slices of ROW_BLOCK rows, in order."""
    return (slice(start, start + ROW_BLOCK) for start in range(0, n, ROW_BLOCK))


def squared_distances(X: Array, anchors: Array) -> Array:
    """|x_i - c_m|^2 as one matrix product, shape (rows of X, anchors).

    Values within the rounding of |x|^2 + |c|^2 are set to zero, so an anchor has distance zero from itself. Otherwise
    maps that take a square root would turn rounding into a distance of half the digits.
    """
    left, right = np.einsum("ij,ij->i", X, X), np.einsum("ij,ij->i", anchors, anchors)
    D: Array = X @ anchors.T
    D *= -2.0
    D += left[:, None]
    D += right
    rounding = D.dtype.type(ROUNDING * np.finfo(D.dtype).eps)
    D[(rounding * left[:, None] + rounding * right) > D] = 0.0
    return D
