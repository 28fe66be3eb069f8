"""Constants of 4 bits: two of them in a byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["paired"]


def paired(table: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Rows of numbers from -8 to 7, each plus 8: the first of two is the lower half of a byte.

    >>> paired(np.array([[1, -1, 7]])).tolist()
    [[121, 15]]
    """
    halves = np.zeros((len(table), -(-table.shape[1] // 2) * 2), np.uint8)
    halves[:, : table.shape[1]] = table + 8
    found: NDArray[np.uint8] = halves[:, ::2] | halves[:, 1::2] << 4
    return found
