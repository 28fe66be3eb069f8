"""Prequential error: every sample is predicted before it is learned (test, then train).

Samples that no kernel reaches are counted, too: the machine says nothing about them, f is about zero for every class.
Where they are many, the samples have become unlike those from which scaling and gammas were taken. Scores of samples
that were not learned yet are what a model of the stream is calibrated by.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.calibration import Calibration, fit_calibration

__all__ = ["RECENT_BLOCKS", "SCORED_BLOCKS", "Prequential"]


RECENT_BLOCKS = 8
"""Blocks over which the recent error is taken: 1,024 samples."""

SCORED_BLOCKS = 16
"""Blocks whose scores are kept to calibrate by: 2,048 samples, or fewer of many classes."""

_MOST_SCORES = 2**17  # numbers, a megabyte
_LEAST_SCORED = 100


@dataclass
class Prequential:
    """How many samples were predicted before they were learned, and how many of them wrongly.

    Examples
    --------
    >>> record = Prequential()
    >>> record.add(128, 64, 0)
    >>> for _ in range(8):
    ...     record.add(128, 16, 2)
    >>> record.error == (64 + 8 * 16) / (9 * 128), record.recent_error, record.recent_silence
    (True, 0.125, 0.015625)
    """

    tested: int = 0
    errors: int = 0
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=RECENT_BLOCKS))
    scored: deque[tuple[Array, Array]] = field(default_factory=lambda: deque(maxlen=SCORED_BLOCKS))

    def add(self, tested: int, errors: int, silent: int) -> None:
        """A block of samples: how many, how many of them wrong, and about how many nothing was said."""
        self.tested += tested
        self.errors += errors
        self.recent.append((tested, errors, silent))

    def keep(self, scores: Array, codes: Array) -> None:
        """Scores (n, K) of samples before they were learned, and their classes; the oldest make room."""
        self.scored.append((scores, codes))
        while len(self.scored) > 1 and sum(kept.size for kept, _ in self.scored) > _MOST_SCORES:
            self.scored.popleft()

    def calibration(self) -> Calibration | None:
        """By the scores of the latest samples; None where they are too few, or all of one class."""
        n = sum(len(codes) for _, codes in self.scored)
        if n < _LEAST_SCORED:
            return None
        scores, codes = (np.concatenate(parts) for parts in zip(*self.scored, strict=True))
        return fit_calibration(scores, codes, "samples of the stream before they were learned")

    @property
    def error(self) -> float:
        """Share of errors since the first sample that was predicted; nan before."""
        return self.errors / self.tested if self.tested else float("nan")

    @property
    def recent_error(self) -> float:
        """Share of errors of the latest blocks; nan before there is one."""
        return self._share(1)

    @property
    def recent_silence(self) -> float:
        """Share of samples of the latest blocks that no kernel reached; nan before there is one."""
        return self._share(2)

    def _share(self, what: int) -> float:
        tested = sum(block[0] for block in self.recent)
        return sum(block[what] for block in self.recent) / tested if tested else float("nan")
