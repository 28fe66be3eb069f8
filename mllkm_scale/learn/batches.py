"""Batches of a stream of rows, and the memory of a descent: chunks in a random order, shuffled within a bounded buffer.

An epoch is cut into windows of consecutive chunks of a random order. The rows of a window are in memory, are shuffled,
and are divided into batches of nearly equal size. All of this is a function of (seed, epoch, window), so a descent that
is resumed in the middle of a window gets the remaining batches. While one window is learned, a thread reads the next
one, also across the end of an epoch, so two windows are in memory. The plan computes the memory of a descent from these
sizes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.closing import Closing
from mllkm_scale.kernels.grid import RowSource
from mllkm_scale.learn.dropout import kept_kernels
from mllkm_scale.learn.machine import Layout
from mllkm_scale.learn.settings import HELD_SHARE, MOST_HELD, SAMPLE_ROWS, LearnSettings

__all__ = ["BLOCK_ROWS", "WINDOW_BYTES", "Batches", "Place", "Units", "block_bytes", "learn_bytes", "window_rows"]

BLOCK_ROWS = 128
"""Rows of a block. A batch is divided into such blocks for any number of threads, and the bits depend on the blocks
only."""

WINDOW_BYTES = 64 << 20
"""Bytes of the rows of a window, in single precision; there are two windows."""


def window_rows(n_rows: int, chunk_rows: int, n_features: int) -> int:
    """Largest number of rows of a window: whole chunks of at most `WINDOW_BYTES`, or one chunk."""
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
    """Memory of a descent: windows of rows, the blocks of a batch, parameters and moments, and held-out rows."""
    most = min(2 * settings.batch_rows, n_rows)  # of a block of more rows, the others are never touched
    of_a_step = replace(layout, n_kernels=kept_kernels(layout.n_kernels, settings.dropout))
    blocks = -(-most // BLOCK_ROWS) * block_bytes(of_a_step, min(BLOCK_ROWS, most))
    if settings.dropout > 0:  # a block of the whole machine beside them, and the parameters of a step
        blocks += block_bytes(layout, min(BLOCK_ROWS, most)) + 4 * of_a_step.size
    rows = window_rows(n_rows, chunk_rows, layout.n_features)
    window = 4 * (layout.n_features + layout.n_outputs) * rows * (1 if rows == n_rows else 2)
    window += 8 * (2 * layout.n_features * chunk_rows + 3 * rows)
    held = min(MOST_HELD, int(HELD_SHARE * n_rows) + 1) * (20 * layout.n_features + 8 * layout.n_outputs)
    sample = 3 * 8 * min(n_rows, max(SAMPLE_ROWS, layout.n_kernels)) * layout.n_features
    parameters = layout.size * (4 * 6 + 8)
    return blocks + window + held + sample + parameters + n_rows


@dataclass(frozen=True)
class Units:
    """The units of the descent, in which rows have mean zero and mean variance one."""

    centre: Array  # (d,)
    length: float

    @classmethod
    def of_sample(cls, sample: Array) -> Units:
        """The units of some rows in double precision; the length is 1 if all rows are equal."""
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


class _Window:
    """Buffers for the rows of a window and their signs."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        self.rows: Array = np.empty((0, n_features), np.float32)
        self.signs: Array = np.empty((0, n_outputs), np.float32)

    def reserve(self, count: int) -> None:
        if count > len(self.rows):
            self.rows = np.empty((count, self.rows.shape[1]), np.float32)
            self.signs = np.empty((count, self.signs.shape[1]), np.float32)


class Batches(Closing):
    """The rows of a source that are `used`, in `units`, with their signs times their weights, in single precision.

    Weights (n,) are divided by their mean over the rows that are used, so that the hinge is a weighted mean. `close`
    ends the thread that reads ahead, up to the end of the last of `epochs`.
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
        epochs: int = 1,
    ) -> None:
        self.source, self.signs, self.used = source, signs, used
        self.batch_rows, self.units, self.seed, self.epochs = batch_rows, units, seed, epochs
        self.weights = None if weights is None else weights / weights[used].mean()
        n, height = source.n_rows, source.chunk_rows
        self.chunks = np.flatnonzero(np.add.reduceat(used, np.arange(0, n, height), dtype=np.int64))  # with rows
        self.n_chunks = len(self.chunks)
        self.chunks_at_once = max(1, window_rows(n, height, source.n_features) // height)
        self.n_windows = -(-self.n_chunks // self.chunks_at_once)
        self.waited_s = 0.0  # for windows that had not been read yet
        self._reader = ThreadPoolExecutor(1, "mllkm-reader") if self.n_windows > 1 else None
        self._ahead: tuple[Place, Future[int]] | None = None  # the window that is being read, or was read, ahead
        self._windows = [_Window(source.n_features, signs.shape[1]) for _ in range(2)]

    def close(self) -> None:
        """Stop reading ahead, after waiting for the current read."""
        if self._ahead is not None:
            self._ahead[1].cancel()
            wait([self._ahead[1]])
            self._ahead = None
        if self._reader is not None:
            self._reader.shutdown()

    @property
    def steps_per_epoch(self) -> int:
        """Approximate number of batches of an epoch: a window may have one more or less."""
        return max(1, round(int(np.count_nonzero(self.used)) / self.batch_rows))

    @property
    def most_rows(self) -> int:
        """Largest possible number of rows of a batch."""
        return 2 * self.batch_rows

    def after(self, place: Place) -> Iterator[tuple[Place, Array, Array]]:
        """Batches of the epoch from this place on: the place after each, its rows and its signs."""
        for number in range(place.window, self.n_windows):
            count = self._turn_to(Place(place.epoch, number))
            window = self._windows[0]
            order = np.random.default_rng([self.seed, 12, place.epoch, number]).permutation(count)
            parts = np.array_split(order, max(1, round(len(order) / self.batch_rows)))
            first = place.batch if number == place.window else 0
            for batch in range(first, len(parts)):
                if not len(parts[batch]):
                    continue
                last = batch + 1 == len(parts)
                following = Place(place.epoch, number + 1, 0) if last else Place(place.epoch, number, batch + 1)
                yield following, window.rows[parts[batch]], window.signs[parts[batch]]

    def _turn_to(self, place: Place) -> int:
        """Make this window the first of the two, and start to read the next one into the other buffer; return its
        number of rows.

        If all rows are in one window, they are read once.
        """
        if self._reader is None:
            if not len(self._windows[0].rows):
                self._fill(self._windows[0], Place())
            return len(self._windows[0].rows)
        started = time.perf_counter()
        if self._ahead is not None and self._ahead[0] != place:  # the descent was restarted at another place
            wait([self._ahead[1]])
            self._ahead = None
        ahead, self._ahead = self._ahead, None
        count = self._fill(self._windows[1], place) if ahead is None else ahead[1].result()
        self._windows.reverse()
        self.waited_s += time.perf_counter() - started
        following = Place(place.epoch, place.window + 1)
        if following.window == self.n_windows:
            following = Place(place.epoch + 1)
        if following.epoch < self.epochs:
            self._ahead = following, self._reader.submit(self._fill, self._windows[1], following)
        return count

    def _fill(self, window: _Window, place: Place) -> int:
        """Read the rows of a window, and return their number."""
        height, n = self.source.chunk_rows, self.source.n_rows
        chunks = self.chunks
        if self.n_windows > 1:
            order = np.random.default_rng([self.seed, 11, place.epoch]).permutation(self.chunks)
            chunks = order[place.window * self.chunks_at_once : (place.window + 1) * self.chunks_at_once]
        picked = [np.flatnonzero(self.used[c * height : (c + 1) * height]) + c * height for c in chunks]
        count = sum(map(len, picked))
        window.reserve(count)
        start = 0
        for chunk, rows in zip(chunks, picked, strict=True):
            first = int(chunk) * height
            own = slice(start, start + len(rows))
            values = self.source.part(first, min(first + height, n))
            window.rows[own] = self.units.of(values[rows - first])
            window.signs[own] = self.signs[rows]
            if self.weights is not None:
                window.signs[own] *= self.weights[rows, None]
            start += len(rows)
        return count
