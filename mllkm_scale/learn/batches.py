"""Batches of a stream of rows: chunks in a random order, shuffled within a bounded buffer.

An epoch is cut into windows of consecutive chunks of a random order. The rows of a window are in memory, are shuffled,
and are dealt out in batches of nearly equal size. All of it follows from (seed, epoch, window): a descent that is
resumed in the middle of a window gets the batches that are left of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.grid import RowSource
from mllkm_scale.learn.sizes import window_rows

__all__ = ["Batches", "Place", "Units"]


@dataclass(frozen=True)
class Units:
    """The units of the descent, in which rows have the mean zero and the mean variance one."""

    centre: Array  # (d,)
    length: float

    @classmethod
    def of_sample(cls, sample: Array) -> Units:
        """The units of some rows in double precision; where all are the same, their length is 1."""
        length = float(np.sqrt(np.mean(sample.var(axis=0))))
        return cls(sample.mean(axis=0), length or 1.0)

    def of(self, rows: Array) -> Array:
        """Rows in these units, in double precision."""
        values: Array = rows - self.centre
        values /= self.length
        return values


@dataclass(frozen=True, order=True)
class Place:
    """Where a descent stands: the next batch."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class Batches:
    """The rows of a source that are `used`, in `units`, with their signs, in single precision."""

    def __init__(self, source: RowSource, signs: Array, used: Array, batch_rows: int, units: Units, seed: int) -> None:
        self.source, self.signs, self.used = source, signs, used
        self.batch_rows, self.units, self.seed = batch_rows, units, seed
        n, height = source.n_rows, source.chunk_rows
        self.n_chunks = -(-n // height)
        self.chunks_at_once = max(1, window_rows(n, height, source.n_features) // height)
        self.n_windows = -(-self.n_chunks // self.chunks_at_once)
        self._rows: Array = np.empty((0, source.n_features), np.float32)
        self._signs: Array = np.empty((0, signs.shape[1]), np.float32)

    @property
    def steps_per_epoch(self) -> int:
        """Batches of an epoch, about: a window may have one more or less."""
        return max(1, round(int(np.count_nonzero(self.used)) / self.batch_rows))

    @property
    def most_rows(self) -> int:
        """Rows of the largest batch that there can be."""
        return 2 * self.batch_rows

    def after(self, place: Place) -> Iterator[tuple[Place, Array, Array]]:
        """Batches of the epoch from this place on: the place after each, its rows and its signs."""
        for window in range(place.window, self.n_windows):
            order = self._fill(place.epoch, window)
            parts = np.array_split(order, max(1, round(len(order) / self.batch_rows)))
            first = place.batch if window == place.window else 0
            for number in range(first, len(parts)):
                if not len(parts[number]):
                    continue
                last = number + 1 == len(parts)
                following = Place(place.epoch, window + 1, 0) if last else Place(place.epoch, window, number + 1)
                yield following, self._rows[parts[number]], self._signs[parts[number]]

    def _fill(self, epoch: int, window: int) -> Array:
        """Read the rows of a window, and draw their order."""
        order = np.random.default_rng([self.seed, 11, epoch]).permutation(self.n_chunks)
        chunks = order[window * self.chunks_at_once : (window + 1) * self.chunks_at_once]
        height, n = self.source.chunk_rows, self.source.n_rows
        whole = self.n_windows == 1
        if whole and len(self._rows):  # all rows are here already
            return np.random.default_rng([self.seed, 12, epoch, window]).permutation(len(self._rows))
        if whole:
            chunks = np.arange(self.n_chunks)
        picked = [np.flatnonzero(self.used[c * height : (c + 1) * height]) + c * height for c in chunks]
        count = sum(map(len, picked))
        if count > len(self._rows):
            self._rows = np.empty((count, self.source.n_features), np.float32)
            self._signs = np.empty((count, self.signs.shape[1]), np.float32)
        start = 0
        for chunk, rows in zip(chunks, picked, strict=True):
            first = int(chunk) * height
            values = self.source.part(first, min(first + height, n))
            self._rows[start : start + len(rows)] = self.units.of(values[rows - first])
            self._signs[start : start + len(rows)] = self.signs[rows]
            start += len(rows)
        return np.random.default_rng([self.seed, 12, epoch, window]).permutation(count)
