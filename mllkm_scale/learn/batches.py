"""Batches of a stream of rows, and the memory of a descent: chunks in a random order, shuffled within a bounded buffer.

An epoch is cut into windows of consecutive chunks of a random order. The rows of a window are in memory, are shuffled,
and are dealt out in batches of nearly equal size. All of it follows from (seed, epoch, window): a descent that is
resumed in the middle of a window gets the batches that are left of it. What a descent holds is arithmetic over these
sizes, for the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.grid import RowSource
from mllkm_scale.learn.dropout import kept_kernels
from mllkm_scale.learn.machine import Layout
from mllkm_scale.learn.settings import HELD_SHARE, MOST_HELD, SAMPLE_ROWS, LearnSettings

__all__ = ["BLOCK_ROWS", "WINDOW_BYTES", "Batches", "Place", "Units", "block_bytes", "learn_bytes", "window_rows"]

BLOCK_ROWS = 128
"""Rows of a block: a batch is cut into such blocks, whatever the threads, and the bits follow from it."""

WINDOW_BYTES = 64 << 20
"""Of the rows of a window, in single precision."""


def window_rows(n_rows: int, chunk_rows: int, n_features: int) -> int:
    """Rows of a window, at most: whole chunks of at most `WINDOW_BYTES`, or one chunk."""
    chunks = max(1, WINDOW_BYTES // (4 * n_features * chunk_rows))
    return min(n_rows, chunks * chunk_rows)


def block_bytes(layout: Layout, height: int, itemsize: int = 4) -> int:
    """Memory of a block, with what a step gathers of the active rows."""
    s, K, width = layout.n_kernels, layout.n_outputs, layout.width
    if layout.family.componentwise:
        rows = height * (3 * s * width)
        rest = 2 * s * K * width
    else:
        rows = height * (5 * s + 2 * K * width + 2 * width)
        rest = s
    rows += height * (4 * width + 2 * K + layout.n_features)
    return itemsize * (layout.size + rows + rest + 4 * s * width)


def learn_bytes(layout: Layout, n_rows: int, chunk_rows: int, settings: LearnSettings) -> int:
    """Memory of a descent: a window of rows, the blocks of a batch, parameters and moments, and held-out rows."""
    most = min(2 * settings.batch_rows, n_rows)  # of a block of more rows, the others are never touched
    of_a_step = replace(layout, n_kernels=kept_kernels(layout.n_kernels, settings.dropout))
    blocks = -(-most // BLOCK_ROWS) * block_bytes(of_a_step, min(BLOCK_ROWS, most))
    if settings.dropout > 0:  # a block of the whole machine beside them, and the parameters of a step
        blocks += block_bytes(layout, min(BLOCK_ROWS, most)) + 4 * of_a_step.size
    window = 4 * (layout.n_features + layout.n_outputs) * window_rows(n_rows, chunk_rows, layout.n_features)
    window += 8 * (2 * layout.n_features * chunk_rows + 2 * window_rows(n_rows, chunk_rows, layout.n_features))
    held = min(MOST_HELD, int(HELD_SHARE * n_rows) + 1) * (20 * layout.n_features + 8 * layout.n_outputs)
    sample = 3 * 8 * min(n_rows, max(SAMPLE_ROWS, layout.n_kernels)) * layout.n_features
    parameters = layout.size * (4 * 6 + 8)
    return blocks + window + held + sample + parameters + n_rows


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
    """The rows of a source that are `used`, in `units`, with their signs times their weights, in single precision.

    Weights (n,) are divided by their mean over the rows that are used, so that the hinge is a weighted mean.
    """

    def __init__(
        self,
        source: RowSource,
        signs: Array,
        used: Array,
        batch_rows: int,
        units: Units,
        seed: int,
        weights: Array | None = None,
    ) -> None:
        self.source, self.signs, self.used = source, signs, used
        self.batch_rows, self.units, self.seed = batch_rows, units, seed
        self.weights = None if weights is None else weights / weights[used].mean()
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
            if self.weights is not None:
                self._signs[start : start + len(rows)] *= self.weights[rows, None]
            start += len(rows)
        return np.random.default_rng([self.seed, 12, epoch, window]).permutation(count)
