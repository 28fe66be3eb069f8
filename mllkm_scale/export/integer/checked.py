"""Arithmetic of 32 bits on int64 arrays: every result is checked to be one that C has, too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST", "halved", "int32"]

MOST = 2**31 - 1

Integers = NDArray[np.int64]


def int32(values: Integers) -> Integers:
    """The values, which are within 32 bits."""
    if values.size and not -MOST <= values.min() <= values.max() <= MOST:
        raise OverflowError(f"an accumulator is {np.abs(values).max():,}, beyond 32 bits")
    return values


def halved(values: Integers, downs: Integers | int) -> Integers:
    """values / 2^downs, rounded to the nearest integer, and up in the middle.

    >>> halved(np.array([5, 6, -6, -7]), 2).tolist(), halved(np.array([5]), 0).tolist()
    ([1, 2, -1, -2], [5])
    """
    half = (np.int64(1) << np.asarray(downs)) >> 1
    return int32(values + half) >> downs
