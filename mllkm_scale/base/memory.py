"""The resident memory of the process, and its peak, to compare with the plan; what the C library keeps and returns.

The peak is the system's own high-water mark, so it misses no allocation: VmHWM if /proc has it, otherwise ru_maxrss of
getrusage. Both count from the start of the process, including the interpreter.

The plan assigns the same memory to stages that run one after the other. So the memory that a stage has freed is
returned before the next stage begins: each thread has its own heap, and would not find it there.

Dask starts its workers with MALLOC_TRIM_THRESHOLD_, so that the C library returns every freed array to the system at
once. A scan allocates and frees arrays of some megabytes, and took two and a half times as long with this setting.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

import psutil

__all__ = ["give_back", "keep_memory", "peak_bytes", "rss_bytes"]

STATUS = Path("/proc/self/status")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt
_KEPT_BYTES, _LARGE_BYTES = 1 << 26, 1 << 25


def rss_bytes() -> int:
    """Resident memory of this process now.

    >>> 10**6 < rss_bytes() <= peak_bytes()
    True
    """
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """Peak resident memory of this process; the current value if the system keeps no mark."""
    mark = _high_water_bytes()
    # Linux adds up the pages of threads with a delay: the mark may trail the resident size by some pages.
    return max(mark or 0, rss_bytes())


def _high_water_bytes() -> int | None:
    return _from_status() or _from_usage()


def _from_status() -> int | None:
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == "VmHWM" and len(words) == 2 and words[0].isdigit():
            return int(words[0]) * 1024
    return None


def _from_usage() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit_bytes or None


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
