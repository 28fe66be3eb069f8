"""Prequential error: every sample is predicted before it is learned (test, then train).

Samples on which all kernels are almost zero are also counted: f is about zero for every class. If there are many of
them, the samples have become unlike those that determined scaling and gammas. The scores of samples before they are
learned are used to calibrate the model of the stream.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.model.calibration import Calibration, fit_calibration

__all__ = ["Prequential"]


RECENT_BLOCKS = 8
"""Number of blocks for the recent error: 1,024 samples."""

SCORED_BLOCKS = 16
"""Number of blocks whose scores are kept for the calibration: 2,048 samples, or fewer with many classes."""

_MOST_SCORES = 2**17  # numbers, a megabyte
_LEAST_SCORED = 100


@dataclass
class Prequential:
    """Counts of samples that were predicted before they were learned, and of errors.

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
        """Add a block: the numbers of samples, of errors, and of samples without any active kernel."""
        self.tested += tested
        self.errors += errors
        self.recent.append((tested, errors, silent))

    def keep(self, scores: Array, codes: Array) -> None:
        """Keep scores (n, K) of samples before they were learned, and their classes; the oldest ones are dropped."""
        self.scored.append((scores, codes))
        while len(self.scored) > 1 and sum(kept.size for kept, _ in self.scored) > _MOST_SCORES:
            self.scored.popleft()

    def calibration(self) -> Calibration | None:
        """The calibration by the scores of the latest samples; None if they are too few, or all of one class."""
        n = sum(len(codes) for _, codes in self.scored)
        if n < _LEAST_SCORED:
            return None
        scores, codes = (np.concatenate(parts) for parts in zip(*self.scored, strict=True))
        return fit_calibration(scores, codes, "samples of the stream before they were learned")

    @property
    def error(self) -> float:
        """Share of errors since the first prediction; nan before it."""
        return self.errors / self.tested if self.tested else float("nan")

    @property
    def recent_error(self) -> float:
        """Share of errors of the latest blocks; nan before the first block."""
        return self._share(1)

    @property
    def recent_silence(self) -> float:
        """Share of samples of the latest blocks on which all kernels are almost zero; nan before the first block."""
        return self._share(2)

    def _share(self, what: int) -> float:
        tested = sum(block[0] for block in self.recent)
        return sum(block[what] for block in self.recent) / tested if tested else float("nan")
