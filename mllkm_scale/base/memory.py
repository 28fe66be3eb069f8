"""Memory of the process: how much it holds, the most it ever held, and what the C library keeps or gives back.

The peak is the system's own high-water mark, which sees every allocation between two measurements: VmHWM where /proc
has it, ru_maxrss of getrusage elsewhere. Both count from the start of the process, interpreter included.

Stages of a training that work in turn are planned in the same memory. What one of them has dropped is given back before
the next begins: threads have heaps of their own, and would not find it there.

Dask starts its workers so that the C library gives every array back to the system as soon as it is dropped
(MALLOC_TRIM_THRESHOLD_). A scan makes and drops arrays of some megabytes; it took two and a half times as long so.
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
    """Most resident memory of this process over its life; that of now where the system keeps no mark."""
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
