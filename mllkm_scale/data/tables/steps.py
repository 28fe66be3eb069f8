"""Steps of a number: a few frequent values, and ranges of the others, counted by fold and class.

Examples are a gain of 0, 3103 or 7688, an age, or a number of rooms. The share of a class at such a value may differ
from that of its neighbours, which a smooth function of the value cannot express. A step is a value of at least
`STEP_ROWS` rows, or a range of rarer neighbours. Numbers whose values rarely repeat, such as measurements, have no
steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.base.arrays import Array

__all__ = ["LEAST_TABLE_ROWS", "ValueCounts", "most_values"]

LEAST_TABLE_ROWS = 2000
"""Smallest number of rows of a table with steps: with fewer, the statistics are too uncertain."""

MOST_VALUES = 1000
"""Largest number of values of a number with steps."""

STEP_ROWS = 5
"""Smallest number of rows of a value that is a step."""

STEP_SHARE = 0.5
"""Smallest share of the rows in such steps."""

STEP_BYTES = 2**23
"""Memory of the counts of all numbers."""


def most_values(n_numbers: int, n_rows: int, n_counts: int) -> int:
    """Largest number of values that are counted for each number, given the number of counts of a value.

    It is 0 with few rows, or if there is too little memory.

    >>> most_values(10, 10**6, 10), most_values(10, 300, 10), most_values(5000, 9000, 10), most_values(10**5, 9000, 10)
    (1000, 0, 19, 0)
    """
    if not n_numbers or n_rows < LEAST_TABLE_ROWS:
        return 0
    share = STEP_BYTES // (8 * n_numbers * (n_counts + 1))
    return 0 if share < 3 else min(MOST_VALUES, share)


class ValueCounts:
    """Counts the rows of each value of a number, and those of each class, by fold, until there are too many values.

    Examples
    --------
    >>> counts = ValueCounts(100, 1, 2)
    >>> x, fold = np.repeat([0.0, 1.0, 2.0, 50.0], [30, 3, 4, 20]), np.zeros(57, dtype=np.int64)
    >>> counts.update(x, fold, np.ones((57, 2)))
    >>> edges, of_steps = counts.steps()
    >>> edges.tolist(), of_steps[0, :, 0].tolist()
    ([0.5, 26.0], [30.0, 7.0, 20.0])
    """

    def __init__(self, most: int, n_folds: int, n_counts: int) -> None:
        self._most = most
        self._values: NDArray[np.float64] = np.empty(0)
        self._counts: NDArray[np.float64] | None = np.zeros((n_folds, 0, n_counts))

    def update(self, x: Array, folds: Array, ones: Array) -> None:
        """Add rows: values (NaN is ignored), their folds, and the counts of each row (rows, n_counts)."""
        if self._counts is None:
            return
        present = ~np.isnan(x)
        x, folds, ones = x[present].astype(np.float64), folds[present], ones[present]
        values = np.union1d(self._values, x)
        if len(values) > self._most:
            self._counts = None
            return
        if len(values) > len(self._values):
            counts = np.zeros((self._counts.shape[0], len(values), self._counts.shape[2]))
            counts[:, np.searchsorted(values, self._values)] = self._counts
            self._values, self._counts = values, counts
        np.add.at(self._counts, (folds, np.searchsorted(values, x)), ones)

    def steps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Edges between steps, and the counts (folds, steps, n_counts); None if the number has no steps.

        An edge lies half-way between two values.
        """
        if self._counts is None or len(self._values) < 3:
            return None
        rows = self._counts[:, :, 0].sum(axis=0)
        starts = _step_starts(rows)
        if len(starts) < 3 or rows[rows >= STEP_ROWS].sum() < STEP_SHARE * rows.sum():
            return None
        edges = self._values[starts[1:] - 1] / 2 + self._values[starts[1:]] / 2
        return edges, np.add.reduceat(self._counts, starts, axis=1)


def _step_starts(rows: Array) -> NDArray[np.int64]:
    """The first value of each step, given the rows of each value in ascending order.

    >>> _step_starts(np.array([30, 3, 4, 2, 3, 20, 1, 15])).tolist()
    [0, 1, 3, 5, 6, 7]
    """
    starts, within = [0], float(rows[0])
    for place, count in enumerate(rows[1:].tolist(), 1):
        if count >= STEP_ROWS or within >= STEP_ROWS:
            starts.append(place)
            within = 0.0
        within += count
    return np.array(starts, dtype=np.int64)
