"""Memory that the C library keeps for the next array, or gives back to the system.

Stages of a training that work in turn are planned in the same memory. What one of them has dropped is given back before
the next begins: threads have heaps of their own, and would not find it there.

Dask starts its workers so that the C library gives every array back to the system as soon as it is dropped
(MALLOC_TRIM_THRESHOLD_). A scan makes and drops arrays of some megabytes; it took two and a half times as long so.
"""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["give_back", "keep_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt
_KEPT_BYTES, _LARGE_BYTES = 1 << 26, 1 << 25


def give_back() -> bool:
    """Have glibc give back what is free in all its heaps; whether there was anything."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(malloc_trim(0))


@cache
def keep_memory() -> bool:
    """Have glibc keep up to 64 MB for arrays below 32 MB; whether it is there to be asked."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
