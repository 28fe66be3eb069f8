"""Memory that a worker keeps for the next array.

Dask starts its workers so that the C library gives every array back to the system as soon as it is dropped
(MALLOC_TRIM_THRESHOLD_). A scan makes and drops arrays of some megabytes; it took two and a half times as long so.
"""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["keep_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt
_KEPT_BYTES, _LARGE_BYTES = 1 << 26, 1 << 25


@cache
def keep_memory() -> bool:
    """Have glibc keep up to 64 MB for arrays below 32 MB; whether it is there to be asked."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
