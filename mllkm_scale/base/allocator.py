"""Memory that the C library keeps for the next array, or returns to the system.

The plan assigns the same memory to stages that run one after the other. So the memory that a stage has freed is
returned before the next stage begins: each thread has its own heap, and would not find it there.

Dask starts its workers with MALLOC_TRIM_THRESHOLD_, so that the C library returns every freed array to the system at
once. A scan allocates and frees arrays of some megabytes, and took two and a half times as long with this setting.
"""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["give_back", "keep_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt
_KEPT_BYTES, _LARGE_BYTES = 1 << 26, 1 << 25


def give_back() -> bool:
    """Make glibc return the free memory of all its heaps to the system; return whether there was any."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(malloc_trim(0))


@cache
def keep_memory() -> bool:
    """Make glibc keep up to 64 MB for arrays below 32 MB; return whether the C library is glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
