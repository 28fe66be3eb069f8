"""Rows of a Gaussian kernel over a changing support set, within a bound on their bytes.

Members of the support set have slots 0 ... width - 1; the row of a slot holds k(x_slot, x_s) for every slot s. The rows
share one buffer that is never larger than the bound: when no row is free, the least recently used one makes room before
another is written. A value is computed pair by pair, always by the same loop, so that it has the same bits whether its
row was kept or is computed again: what is learned does not depend on the bound. (Entries of a matrix product would not:
their last bits depend on the shape of the block.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from mllkm_scale.base.arrays import Array

__all__ = ["CacheStatistics", "KernelCache", "Rows", "fetch_row", "forget_row", "gaussian_block", "insert_row"]

_ITEM_BYTES = 8
_HITS, _MISSES, _EVICTIONS, _KEPT, _MOST_KEPT, _CLOCK = range(6)


@dataclass(frozen=True)
class CacheStatistics:
    """How a cache was used: rows found, computed again, and evicted, and the most bytes that it held."""

    hits: int
    misses: int
    evictions: int
    peak_bytes: int


class Rows(NamedTuple):
    """The arrays of a cache, for compiled loops."""

    values: Array  # (r, width) the rows that are kept
    spare: Array  # (2, width) the two rows of a step where the bound leaves room for none; otherwise empty
    row_of: Array  # (width,) row of a slot, or -1
    slot_of: Array  # (r,) slot of a row, or -1
    last_use: Array  # (r,) when a row was last asked for; -1 for free rows
    counts: Array  # (6,) hits, misses, evictions, rows kept now, the most of them at once, clock


class KernelCache:
    """At most `bound_bytes` of kernel rows; a step needs two at once, so less room than that is left unused."""

    def __init__(self, bound_bytes: int, n: int) -> None:
        self._buffer = np.empty(min(bound_bytes // _ITEM_BYTES, n * n))
        self._counts = np.zeros(6, dtype=np.int64)
        self._peak_bytes = 0
        self.rows = self._layout(0)

    def widen(self, width: int) -> None:
        """Longer rows, in the same buffer: fewer fit, and the most recently used of those that were kept stay."""
        self._peak_bytes = self.statistics.peak_bytes
        old, self.rows = self.rows, self._layout(width)
        by_use = np.argsort(old.last_use)[len(old.last_use) - self._counts[_KEPT] :]
        stay = np.sort(by_use[max(len(by_use) - len(self.rows.values), 0) :])
        # First close the gaps, then spread from the last row on: no row is written over before it has moved.
        for row, source in enumerate(stay):
            old.values[row] = old.values[source]
        for row in reversed(range(len(stay))):
            self.rows.values[row, : old.values.shape[1]] = old.values[row]
        slots = old.slot_of[stay]
        self.rows.slot_of[: len(stay)], self.rows.row_of[slots] = slots, np.arange(len(stay))
        self.rows.last_use[: len(stay)] = old.last_use[stay]
        self._counts[_EVICTIONS] += len(by_use) - len(stay)
        self._counts[[_KEPT, _MOST_KEPT]] = len(stay)

    def _layout(self, width: int) -> Rows:
        count = min(len(self._buffer) // max(width, 1), width)
        count = count if count >= 2 else 0
        return Rows(
            values=self._buffer[: count * width].reshape(count, width),
            spare=np.empty((2, 0 if count else width)),
            row_of=np.full(width, -1),
            slot_of=np.full(count, -1),
            last_use=np.full(count, -1),
            counts=self._counts,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are kept."""
        return int(self._counts[_KEPT]) * self._row_bytes

    @property
    def statistics(self) -> CacheStatistics:
        """Counted since the cache was made."""
        hits, misses, evictions, _, most_kept, _ = self._counts.tolist()
        return CacheStatistics(hits, misses, evictions, max(self._peak_bytes, most_kept * self._row_bytes))

    @property
    def _row_bytes(self) -> int:
        return self.rows.values.shape[1] * _ITEM_BYTES


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def gaussian_block(X: Array, gamma: float, samples: Array, others: Array, out: Array) -> None:
    """out[i, j] = exp(-gamma |x_i - x_j|^2) for i among the samples, and j among the others."""
    for j in range(len(others)):  # outermost, so that each of the many others is read from memory once
        for i in range(len(samples)):
            distance = 0.0
            for p in range(X.shape[1]):
                difference = X[samples[i], p] - X[others[j], p]
                distance += difference * difference
            out[i, j] = math.exp(-gamma * distance)


@numba.njit(cache=True, nogil=True)
def forget_row(rows: Rows, slot: int) -> None:
    """The sample of a slot has left: its row is free."""
    row = rows.row_of[slot]
    if row >= 0:
        rows.row_of[slot], rows.slot_of[row], rows.last_use[row] = -1, -1, -1
        rows.counts[_KEPT] -= 1


@numba.njit(cache=True, nogil=True)
def _claim_row(rows: Rows, slot: int) -> int:
    """A row for a slot that has none: a free one, or else that of the least recently used."""
    row = int(rows.last_use.argmin())
    if rows.slot_of[row] >= 0:
        rows.counts[_EVICTIONS] += 1
        forget_row(rows, rows.slot_of[row])
    rows.slot_of[row], rows.row_of[slot], rows.last_use[row] = slot, row, rows.counts[_CLOCK]
    rows.counts[_KEPT] += 1
    rows.counts[_MOST_KEPT] = max(rows.counts[_MOST_KEPT], rows.counts[_KEPT])
    return row


@numba.njit(cache=True, nogil=True)
def fetch_row(rows: Rows, slot: int, spare: Array, X: Array, gamma: float, samples: Array) -> Array:
    """The row of a slot over `samples`, the samples of all slots so far; kept, or else computed.

    It is valid until the second next call; where nothing can be kept it is written to `spare` (1, width).
    """
    rows.counts[_CLOCK] += 1
    row = rows.row_of[slot]
    if row >= 0:
        rows.counts[_HITS] += 1
        rows.last_use[row] = rows.counts[_CLOCK]
        return rows.values[row]
    rows.counts[_MISSES] += 1
    target = spare
    if len(rows.slot_of) > 0:
        row = _claim_row(rows, slot)
        target = rows.values[row : row + 1]
    gaussian_block(X, gamma, samples[slot : slot + 1], samples, target)
    return target[0]


@numba.njit(cache=True, nogil=True)
def insert_row(rows: Rows, slot: int, values: Array) -> None:
    """A slot has a new sample, of which `values` is the row: it is kept, and by symmetry a column of the other rows."""
    rows.counts[_CLOCK] += 1
    for row in range(len(rows.slot_of)):
        if rows.slot_of[row] >= 0:
            rows.values[row, slot] = values[rows.slot_of[row]]
    if len(rows.slot_of) > 0:
        row = _claim_row(rows, slot)
        for s in range(len(values)):
            rows.values[row, s] = values[s]
