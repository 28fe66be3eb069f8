"""Holds out test rows during conversion: X and y become X, y, X_test and y_test of one file.

For every class, one row in each run of 1 / share rows is drawn, by a separate generator. The choice depends on the
order of the file, the share and the seed, and not on the division into blocks.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from mllkm_scale.data.converters.writer import HDF5Writer
from mllkm_scale.data.labels import MAX_CLASSES
from mllkm_scale.data.weights import SAMPLE_WEIGHT
from mllkm_scale.errors import DataError, ParameterError

__all__ = ["HoldOut", "HoldOutWriter"]

FINEST = 10**6  # largest denominator of the share as a fraction


class _ClassDraw:
    """Decides which rows of one class are held out, in order."""

    def __init__(self, share: Fraction, seed: int, number: int) -> None:
        # The rows of the smaller part are drawn, so that every run has at least two rows.
        self._drawn_are_held_out = share <= Fraction(1, 2)
        self._share = share if self._drawn_are_held_out else 1 - share
        self._random = np.random.default_rng([seed, number])
        self._seen = 0
        self._run, self._place = -1, 0.0  # the current run, and the position of the drawn row in it

    def next(self, count: int) -> NDArray[np.bool_]:
        """Whether each of the next rows is held out; the first row of a class never is, so that the class can be
        learned."""
        p, q = self._share.numerator, self._share.denominator
        rows = np.arange(self._seen, self._seen + count)
        runs = rows * p // q
        places = np.concatenate([[self._place], self._random.random(int(runs[-1]) - self._run)])
        place = places[runs - self._run]
        begin, end = -(-runs * q // p), -(-(runs + 1) * q // p)
        first = 1 if self._drawn_are_held_out else 0
        begin = np.where(runs == 0, first, begin)
        end = np.where((runs == 0) & (first == 0), 1, end)
        drawn = rows == begin + (place * (end - begin)).astype(np.int64)
        self._seen, self._run, self._place = self._seen + count, int(runs[-1]), float(places[-1])
        return drawn if self._drawn_are_held_out else ~drawn


class HoldOut:
    """Decides row by row, from the labels only.

    Parameters
    ----------
    share : float
        Share of the rows of each class, between 0 and 1.
    seed : int

    Examples
    --------
    >>> hold_out = HoldOut(0.25, seed=0)
    >>> mask = hold_out.decide(np.repeat(["a", "b"], [8, 40]))
    >>> int(mask[:8].sum()), int(mask[8:].sum())
    (2, 10)
    """

    def __init__(self, share: float, seed: int) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 1 / FINEST <= share <= 1 - 1 / FINEST:
            raise ParameterError(f"hold_out={share!r}: give a share of the rows between 0 and 1, such as 0.2")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ParameterError(f"seed={seed!r}: give a whole number from 0")
        self.share, self.seed = share, seed
        self._fraction = Fraction(share).limit_denominator(FINEST)
        self._classes: dict[Any, _ClassDraw] = {}

    def decide(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each of the next rows, with these labels, is held out."""
        mask = np.zeros(len(labels), dtype=np.bool_)
        found, firsts, codes = np.unique(labels, return_index=True, return_inverse=True)
        for place in np.argsort(firsts):
            label = found[place].item()
            if label not in self._classes:
                self._classes[label] = _ClassDraw(self._fraction, self.seed, len(self._classes))
            rows = np.flatnonzero(codes == place)
            mask[rows] = self._classes[label].next(len(rows))
        if len(self._classes) > MAX_CLASSES:
            raise DataError(f"there are more than {MAX_CLASSES} different labels: name the column of the classes")
        return mask


class HoldOutWriter(HDF5Writer):
    """A writer that writes held-out rows to X_test and y_test, with their weights.

    Rows of X wait for their labels, so converters must write labels not later than the next block, and weights right
    after the labels of the same rows.
    """

    def __init__(self, target: Path, share: float, seed: int, *, overwrite: bool = False) -> None:
        super().__init__(target, overwrite=overwrite)
        self._settings = share, seed
        self._begin()

    def _begin(self) -> None:
        self._hold_out = HoldOut(*self._settings)
        self._decided: list[NDArray[np.bool_]] = []
        self._waiting: list[Any] = []
        self._last: NDArray[np.bool_] = np.empty(0, bool)  # for the latest labels

    def restart(self) -> None:
        super().restart()
        self._begin()

    def append(self, name: str, block: NDArray[Any]) -> None:
        if name in ("X_test", "y_test"):
            raise DataError(f"{self.target} would get two arrays {name}: the source has one; leave hold_out away")
        if name == "y":
            self._last = self._hold_out.decide(block)
            self._decided.append(self._last)
            self._put("y", block, self._last)
        elif name == SAMPLE_WEIGHT:
            self._put(name, block, self._last)
        elif name == "X":
            self._wait(block)
        else:
            super().append(name, block)
        self._write_decided()

    def append_sparse(self, name: str, rows: Any) -> None:
        self._wait(rows)
        self._write_decided()

    def _wait(self, block: Any) -> None:
        if self._waiting:
            raise self._without_labels()
        self._waiting.append(block)

    def require_held_out(self, source: Path) -> None:
        """Refuse a file without held-out rows, or with rows without labels."""
        if self._waiting:
            raise self._without_labels()
        if "y_test" not in self.arrays:
            share = f"{self._hold_out.share:g}"
            raise DataError(f"{source} has too few rows to hold out {share} of each class: give a larger share")

    def _without_labels(self) -> DataError:
        return DataError(f"{self.target} would hold out rows without labels: label every row, or leave hold_out away")

    def _write_decided(self) -> None:
        while self._waiting and self._decided:
            block, mask = self._waiting.pop(0), self._decided.pop(0)
            rows = min(block.shape[0], len(mask))
            self._put("X", block[:rows], mask[:rows])
            if rows < block.shape[0]:
                self._waiting.insert(0, block[rows:])
            if rows < len(mask):
                self._decided.insert(0, mask[rows:])

    def _put(self, name: str, block: Any, held_out: NDArray[np.bool_]) -> None:
        append: Any = super().append_sparse if issparse(block) else super().append
        for target, mask in ((name, ~held_out), (f"{name}_test", held_out)):
            if mask.any():
                append(target, block[mask])
