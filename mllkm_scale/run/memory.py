"""How much memory the process holds, and the most it ever held: the numbers beside the plan's.

The peak is the system's own high-water mark, which misses nothing: VmHWM where /proc has it, ru_maxrss of
getrusage elsewhere. Both count from the start of the process, interpreter included. Where a system keeps
neither, `PeakMemory` samples the resident memory in a thread while its block runs, and may miss a peak that
is shorter than `SAMPLING_S`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

__all__ = ["PeakMemory", "peak_bytes", "rss_bytes"]

SAMPLING_S = 0.02
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


class PeakMemory:
    """Measures the peak over a block of work, from the system's high-water mark or by sampling.

    `peak_bytes` may be asked inside the block and after it. With the high-water mark the peak is that of the
    process's whole life, up to now or the end of the block.

    Examples
    --------
    >>> with PeakMemory() as memory:
    ...     block = bytearray(50_000_000)
    ...     del block
    >>> memory.peak_bytes() > 50_000_000
    True
    """

    def __init__(self) -> None:
        self._peak_bytes = 0
        self._over = threading.Event()
        self._sampler: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._peak_bytes = rss_bytes()
        if _high_water_bytes() is None:
            self._sampler = threading.Thread(target=self._sample, name="peak-memory", daemon=True)
            self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.peak_bytes()
        self._over.set()
        if self._sampler is not None:
            self._sampler.join()

    def peak_bytes(self) -> int:
        """The most seen."""
        if not self._over.is_set():
            self._peak_bytes = max(self._peak_bytes, peak_bytes())
        return self._peak_bytes

    def _sample(self) -> None:
        while not self._over.wait(SAMPLING_S):
            self._peak_bytes = max(self._peak_bytes, rss_bytes())


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
