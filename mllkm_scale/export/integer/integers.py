"""Integer arithmetic as in C, on arrays of int64: sums of 32 bits, rounding shifts, and two numbers per byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST", "Integers", "halved", "int32", "paired"]

MOST = 2**31 - 1
"""The largest number of 32 bits."""

Integers = NDArray[np.int64]


def int32(values: Integers) -> Integers:
    """The values, after checking that they are within 32 bits."""
    if values.size and not -MOST <= values.min() <= values.max() <= MOST:
        raise OverflowError(f"an accumulator is {np.abs(values).max():,}, beyond 32 bits")
    return values


def halved(values: Integers, downs: Integers | int) -> Integers:
    """values / 2^downs, rounded to the nearest integer, with ties upwards.

    >>> halved(np.array([5, 6, -6, -7]), 2).tolist(), halved(np.array([5]), 0).tolist()
    ([1, 2, -1, -2], [5])
    """
    half = (np.int64(1) << np.asarray(downs)) >> 1
    return int32(values + half) >> downs


def paired(table: Integers) -> NDArray[np.uint8]:
    """Rows of numbers of 4 bits, from -8 to 7, each plus 8: the first of two is the lower half of a byte.

    >>> paired(np.array([[1, -1, 7]])).tolist()
    [[121, 15]]
    """
    halves = np.zeros((len(table), -(-table.shape[1] // 2) * 2), np.uint8)
    halves[:, : table.shape[1]] = table + 8
    found: NDArray[np.uint8] = halves[:, ::2] | halves[:, 1::2] << 4
    return found
