"""Distances of rows to anchors, and the blocks of rows in which they are made."""

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

    What is within the rounding of |x|^2 + |c|^2 is zero: an anchor is at distance zero from itself, of which the maps
    that take a square root would otherwise make a distance of half the digits.
    """
    left, right = np.einsum("ij,ij->i", X, X), np.einsum("ij,ij->i", anchors, anchors)
    D: Array = X @ anchors.T
    D *= -2.0
    D += left[:, None]
    D += right
    rounding = D.dtype.type(ROUNDING * np.finfo(D.dtype).eps)
    D[(rounding * left[:, None] + rounding * right) > D] = 0.0
    return D
