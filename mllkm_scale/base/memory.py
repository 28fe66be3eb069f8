"""The resident memory of the process, and its peak, to compare with the plan.

The peak is the system's own high-water mark, so it misses no allocation: VmHWM if /proc has it, otherwise ru_maxrss of
getrusage. Both count from the start of the process, including the interpreter.
"""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

__all__ = ["peak_bytes", "rss_bytes"]

STATUS = Path("/proc/self/status")


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
