"""How much memory the process holds, and the most it ever held: the numbers beside the plan's.

The peak is the system's own high-water mark, which sees every allocation between two looks: VmHWM where /proc
has it, ru_maxrss of getrusage elsewhere. Both count from the start of the process, interpreter included.
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
