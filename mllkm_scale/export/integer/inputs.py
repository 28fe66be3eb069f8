"""Inputs of an integer machine: each feature is an integer, with its own step and offset.

    x = offset + step u,   low <= u <= high

Whole numbers that fit are unchanged, with offset 0 and step 1. Otherwise the step is a power of two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mllkm_scale.base.arrays import Array
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.export.integer.integers import Integers

__all__ = ["Extent", "Inputs", "extent_of"]


@dataclass(frozen=True)
class Extent:
    """The smallest and largest value of each feature, and whether all of its values are whole numbers."""

    low: Array  # (features,)
    high: Array
    whole: NDArray[np.bool_]


@dataclass(frozen=True)
class Inputs:
    """The integer representation of features.

    Examples
    --------
    >>> extent = Extent(np.array([0.0, -1.0]), np.array([255.0, 0.5]), np.array([True, False]))
    >>> inputs = Inputs.of(extent, np.array([True, True]), 16)
    >>> inputs.offsets.tolist(), inputs.steps.tolist(), inputs.quantise([[17.0, 0.25]]).tolist()
    ([0.0, -0.25], [1.0, 3.0517578125e-05], [[17, 16384]])
    """

    offsets: Array  # (features,)
    steps: Array
    low: int
    high: int
    least: Integers  # of the data, for each feature
    most: Integers

    @classmethod
    def of(cls, extent: Extent, used: NDArray[np.bool_], bits: int) -> Inputs:
        """Integers of this number of bits; unsigned with 8 bits if all used features are such numbers."""
        n = len(used)
        offsets, steps = np.zeros(n), np.ones(n)
        low, high = np.where(used, extent.low, 0.0), np.where(used, extent.high, 0.0)
        whole = extent.whole | ~used
        if whole.all() and low.min() >= 0 and high.max() <= 255:
            bounds = 0, 255
        else:
            half = 2 ** (bits - 1)
            bounds = -half, half - 1
            for j in np.flatnonzero(~(whole & (low >= -half) & (high < half))):
                span = high[j] - low[j]
                steps[j] = 2.0 ** np.ceil(np.log2(span / (2 * half - 4))) if span > 0 else 1.0
                offsets[j] = np.round((low[j] + span / 2) / steps[j]) * steps[j] if span > 0 else low[j]
        found = cls(offsets, steps, *bounds, np.zeros(n, np.int64), np.zeros(n, np.int64))
        return cls(offsets, steps, *bounds, found.quantise(low[None])[0], found.quantise(high[None])[0])

    @property
    def kind(self) -> str:
        """The type in C."""
        return "uint8_t" if self.low == 0 else "int16_t"

    def quantise(self, X: ArrayLike) -> Integers:
        """The integers of raw rows; values beyond the range become its ends."""
        codes = np.rint((np.asarray(X, np.float64) - self.offsets) / self.steps)
        return np.clip(codes, self.low, self.high).astype(np.int64)

    def values(self, U: ArrayLike) -> Array:
        """The raw rows represented by integers."""
        rows: Array = self.offsets + self.steps * np.asarray(U)
        return rows


def extent_of(dataset: Dataset) -> Extent:
    """The extent, in one pass over the rows."""
    low, high = np.full(dataset.n_features, np.inf), np.full(dataset.n_features, -np.inf)
    whole = np.ones(dataset.n_features, dtype=bool)
    for _, chunk in dataset.chunks():
        np.minimum(low, chunk.min(axis=0), out=low)
        np.maximum(high, chunk.max(axis=0), out=high)
        if chunk.dtype.kind == "f":
            whole &= (chunk == np.rint(chunk)).all(axis=0)
    return Extent(low, high, whole)
