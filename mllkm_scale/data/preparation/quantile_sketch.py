"""The distribution of every feature in one pass and bounded memory: sorted buffers that are merged and halved.

A buffer holds k sorted values of each feature, and a value in a buffer of height h represents 2^h samples. Two buffers
of height h become one of height h + 1: their 2k values are sorted, and every second value is kept, alternately the odd
and the even ones.

    rank error <= sum over h of 2^h max(odd_h, even_h)  <=  n H / (2k)

odd_h and even_h count the times that buffers of height h were halved either way, and H is the number of heights: a
halving that keeps the values 1, 3, 5, ... of a sorted list counts ceil(m / 2) values for m below x, and one that keeps
2, 4, 6, ... counts floor(m / 2); with weights 2^h the count is off by 2^h at most, up in the first case and down in the
second. Ranks are exact as long as no buffer is halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.executor import Executor, ThreadExecutor
from mllkm_scale.data.dataset import Dataset
from mllkm_scale.data.grid import default_chunk_rows
from mllkm_scale.errors import DataError

__all__ = ["QuantileSketch", "SketchWork", "buffer_rows", "gather_quantiles", "sketch_bytes"]

SKETCH_BYTES = 16_000_000
"""Memory of all buffers of a sketch with up to `USUAL_HEIGHTS` heights."""

USUAL_HEIGHTS = 10
LEAST_ROWS, MOST_ROWS = 64, 2048  # of a buffer
UNIT_BUFFERS = 4  # least number of buffers that a unit of the pass reads


def buffer_rows(n_features: int) -> int:
    """k, the number of values of a buffer, which depends only on the width of the data.

    Examples
    --------
    >>> buffer_rows(10), buffer_rows(784), buffer_rows(10_000)
    (2048, 254, 64)
    """
    fitting = SKETCH_BYTES // (8 * USUAL_HEIGHTS * n_features)
    return int(min(max(fitting, LEAST_ROWS), MOST_ROWS)) // 2 * 2


class QuantileSketch:
    """A sketch of the distributions of all features of some rows.

    Parameters
    ----------
    n_features : int
    k : int
        Number of values of a buffer.
    phase : int
        Values that are kept when buffers are first halved: odd ones for 0, even ones for 1.

    Examples
    --------
    >>> sketch = QuantileSketch(1, k=4)
    >>> sketch.update(np.arange(100.0)[:, None])
    >>> values, weights = sketch.sample(0)
    >>> int(weights.sum()), sketch.rank_error >= abs(int(weights[values < 50].sum()) - 50)
    (100, True)
    """

    def __init__(self, n_features: int, k: int, phase: int = 0) -> None:
        self.k, self.phase, self.count = k, phase, 0
        self.low, self.high = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        self.loose = np.empty((n_features, 0))  # fewer than k values of each feature, not sorted
        self.buffers: list[NDArray[np.float64] | None] = []  # at most one per height, (d, k)
        self.halvings: list[list[int]] = []  # per height: odd, even

    def update(self, chunk: NDArray[Any]) -> None:
        """Add the rows of a chunk."""
        np.minimum(self.low, chunk.min(axis=0), out=self.low)
        np.maximum(self.high, chunk.max(axis=0), out=self.high)
        self.count += len(chunk)
        self._add(np.ascontiguousarray(chunk.T, dtype=np.float64))

    def merge(self, other: QuantileSketch) -> None:
        """Add the rows of another sketch with the same k."""
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)
        self.count += other.count
        for height, (odd, even) in enumerate(other.halvings):
            self._reach(height)
            self.halvings[height][0] += odd
            self.halvings[height][1] += even
        for height, buffer in enumerate(other.buffers):
            if buffer is not None:
                self._push(buffer, height)
        self._add(other.loose)

    def sample(self, feature: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values of a feature, and the number of samples that each represents."""
        parts = [(self.loose[feature], 1.0)]
        parts += [(held[feature], 2.0**height) for height, held in enumerate(self.buffers) if held is not None]
        weights = np.concatenate([np.full(len(values), weight) for values, weight in parts])
        return np.concatenate([values for values, _ in parts]), weights

    @property
    def rank_error(self) -> int:
        """Bound on the error of the rank of a value."""
        return sum(2**height * max(counts) for height, counts in enumerate(self.halvings))

    def _add(self, columns: NDArray[np.float64]) -> None:
        waiting = np.concatenate([self.loose, columns], axis=1)
        whole = waiting.shape[1] // self.k * self.k
        for start in range(0, whole, self.k):
            self._push(np.sort(waiting[:, start : start + self.k], axis=1), 0)
        self.loose = waiting[:, whole:].copy()

    def _push(self, buffer: NDArray[np.float64], height: int) -> None:
        self._reach(height)
        while (held := self.buffers[height]) is not None:
            self.buffers[height] = None
            both = np.sort(np.concatenate([held, buffer], axis=1), axis=1)
            counts = self.halvings[height]
            offset = self.phase if counts[0] == counts[1] else int(counts[0] > counts[1])
            counts[offset] += 1
            buffer, height = np.ascontiguousarray(both[:, offset::2]), height + 1
            self._reach(height)
        self.buffers[height] = buffer

    def _reach(self, height: int) -> None:
        while len(self.buffers) <= height:
            self.buffers.append(None)
            self.halvings.append([0, 0])


@dataclass(frozen=True)
class SketchWork:
    """Computes sketches of groups of chunks, one in memory at a time."""

    dataset: Dataset
    k: int
    group: int  # chunks

    @property
    def unit_work(self) -> float:
        return 50.0 * self.group * self.dataset.chunk_rows * self.dataset.n_features

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.dataset.paths

    def __call__(self, units: range) -> list[QuantileSketch]:
        return [self._sketch(unit) for unit in units]

    def _sketch(self, unit: int) -> QuantileSketch:
        sketch = QuantileSketch(self.dataset.n_features, self.k, phase=unit % 2)
        for i in range(unit * self.group, min((unit + 1) * self.group, self.dataset.n_chunks)):
            sketch.update(self.dataset.chunk(i))
        return sketch

    def describe(self, units: range) -> str:
        return f"chunks {units[0] * self.group} to {units[-1] * self.group} of {self.dataset.name}"


def gather_quantiles(dataset: Dataset, executor: Executor | None = None) -> QuantileSketch:
    """The sketch of all rows, in one pass by the executor; a DataError names a column that is not finite."""
    k = buffer_rows(dataset.n_features)
    group = -(-UNIT_BUFFERS * k // dataset.chunk_rows)
    sketch = QuantileSketch(dataset.n_features, k)
    for parts in (executor or ThreadExecutor()).start(SketchWork(dataset, k, group), -(-dataset.n_chunks // group)):
        for part in parts:
            sketch.merge(part)
    with np.errstate(over="ignore", invalid="ignore"):
        broken = np.flatnonzero(~np.isfinite(sketch.high - sketch.low))
    if len(broken):
        raise DataError(
            f"{dataset.name}: column {broken[0]} (0-based) has NaN, infinity or values too far apart:"
            " remove or rescale it"
        )
    return sketch


def sketch_bytes(n_rows: int, n_features: int, threads: int) -> int:
    """Memory of a pass besides its chunks: the sketch, and the sketches of finished and current units.

    Each thread is up to two units ahead. A unit holds its buffers and a transposed chunk.
    """
    k, chunk_rows = buffer_rows(n_features), default_chunk_rows(n_features)
    unit_rows = -(-UNIT_BUFFERS * k // chunk_rows) * chunk_rows
    in_all = _heights(n_rows, k) + 6  # a buffer per height, unsorted rows, and two buffers during a merge
    in_unit = _heights(min(unit_rows, n_rows), k) + 2
    held, working = min(k, n_rows), 3 * min(chunk_rows, n_rows)
    return 8 * n_features * (held * in_all + threads * (held * (2 * in_unit + 5) + working))


def _heights(n_rows: int, k: int) -> int:
    return max(1, (n_rows // k).bit_length())
