"""Prequential error: every sample is predicted before it is learned (test, then train)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["RECENT_BLOCKS", "Prequential"]

RECENT_BLOCKS = 8
"""Blocks over which the recent error is taken: 1,024 samples."""


@dataclass
class Prequential:
    """How many samples were predicted before they were learned, and how many of them wrongly.

    Examples
    --------
    >>> record = Prequential()
    >>> record.add(128, 64)
    >>> for _ in range(8):
    ...     record.add(128, 16)
    >>> record.error == (64 + 8 * 16) / (9 * 128), record.recent_error
    (True, 0.125)
    """

    tested: int = 0
    errors: int = 0
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT_BLOCKS))

    def add(self, tested: int, errors: int) -> None:
        """A block of samples, and how many of them were wrong."""
        self.tested += tested
        self.errors += errors
        self.recent.append((tested, errors))

    @property
    def error(self) -> float:
        """Share of errors since the first sample that was predicted; nan before."""
        return self.errors / self.tested if self.tested else float("nan")

    @property
    def recent_error(self) -> float:
        """Share of errors of the latest blocks; nan before there is one."""
        tested = sum(n for n, _ in self.recent)
        return sum(errors for _, errors in self.recent) / tested if tested else float("nan")
