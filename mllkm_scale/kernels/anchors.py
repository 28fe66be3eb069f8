"""Where the anchors come from: all training samples (the paper), some of them, k-means centres, or an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.grid import RowSource

__all__ = ["kmeans_centres", "random_rows"]

Array = NDArray[Any]


def random_rows(n_rows: int, count: int, rng: np.random.Generator) -> Array:
    """`count` distinct row numbers in ascending order (all of them if there are not more)."""
    if count < 1:
        raise ParameterError(f"anchors={count}: at least one anchor is needed")
    return np.sort(rng.choice(n_rows, min(count, n_rows), replace=False))


def kmeans_centres(source: RowSource, count: int, rng: np.random.Generator, *, passes: int = 20) -> Array:
    """Lloyd's k-means in passes over the chunks, started from distinct random rows.

    A centre that loses all its rows stays where it was.
    """
    centres = source.rows(random_rows(source.n_rows, count, rng)).astype(np.float64)
    for _ in range(passes):
        sums, counts = np.zeros_like(centres), np.zeros(len(centres))
        for _, chunk in source.chunks():
            nearest = squared_distances(chunk.astype(np.float64), centres).argmin(axis=1)
            np.add.at(sums, nearest, chunk)
            counts += np.bincount(nearest, minlength=len(centres))
        moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres
