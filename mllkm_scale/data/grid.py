"""The fixed grid of row chunks for all passes over the data.

The grid depends only on the width of the data, not on threads, budget or machine. So sums over chunks and products of
chunks have the same bits everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mllkm_scale.errors import ParameterError

__all__ = ["MOST_FEATURES", "MOST_ROWS", "default_chunk_rows", "require_chunk_rows", "work_dtype"]

MOST_DENSE = 1024
"""Largest number of columns of sparse rows for training without a reduction, with dense chunks."""

CHUNK_BYTES = 2**22
MIN_CHUNK_ROWS = 16
MAX_CHUNK_ROWS = 65536
MOST_FEATURES = 1_000_000
"""Largest number of features: a chunk has at least 16 rows, which then take 128 MB."""

MOST_ROWS = 10**15
"""Largest number of rows: more can only be a damaged size."""


def default_chunk_rows(n_features: int) -> int:
    """Rows of a chunk: about 4 MB of float64, between 16 and 65536 rows.

    Examples
    --------
    >>> default_chunk_rows(784), default_chunk_rows(1), default_chunk_rows(10**6)
    (668, 65536, 16)
    """
    return int(min(max(CHUNK_BYTES // (8 * n_features), MIN_CHUNK_ROWS), MAX_CHUNK_ROWS))


def require_chunk_rows(chunk_rows: int | None, n_features: int) -> int:
    """The requested number of rows of a chunk, or the default."""
    if chunk_rows is None:
        return default_chunk_rows(n_features)
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, int | np.integer) or chunk_rows < 1:
        raise ParameterError(f"chunk_rows must be an integer of at least 1 or None, not {chunk_rows!r}")
    return int(chunk_rows)


def work_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that data stored as `dtype` is computed in.

    float32 holds every value of bool, 8- and 16-bit integers and float16; everything wider becomes float64.

    Examples
    --------
    >>> work_dtype(np.dtype("uint8")), work_dtype(np.dtype("int32"))
    (dtype('float32'), dtype('float64'))
    """
    if dtype.kind == "f":
        narrow = dtype.itemsize <= 4
    else:
        narrow = dtype.itemsize <= 2
    return np.dtype(np.float32 if narrow else np.float64)
