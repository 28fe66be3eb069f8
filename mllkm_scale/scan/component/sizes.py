"""A column of the support as the one-dimensional sums take it, and the sizes and memory of their tables.

For the maps `linear`, `squared` and `exponential`, the sorted column of the support is divided into runs. For
`gaussian`, the line is divided into boxes. An entry is a nonzero dual.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import MapName

__all__ = [
    "COLUMN_BYTES",
    "DIRECT_ENTRIES",
    "MOST_BOXES",
    "N_TERMS",
    "REACH",
    "Entries",
    "component_bytes",
    "n_levels",
    "n_powers",
    "run_bits",
    "table_bytes",
]

COLUMN_BYTES = 2 << 20  # of the table of a column: longer runs are cheaper than tables beyond the caches
_RUN_BITS = {"linear": 3, "squared": 4, "exponential": 3}  # 2^3 samples are a run, if that leaves room
N_TERMS = 16  # of an expansion
REACH = 7  # boxes further apart do not see each other
DIRECT_ENTRIES = 32  # a box that sees so few entries has no expansion
MOST_BOXES = 128  # of a column have one: those that see most entries
_ENTRY_BYTES = 8 + 8 + 4  # coordinate, dual, class


def n_levels(n_runs: int) -> int:
    """Number of levels of a table of moments."""
    return max(0, n_runs - 1).bit_length()


def n_powers(map: MapName) -> int:
    """Number of powers in a table of moments."""
    return 3 if map == "linear" else 4


def table_bytes(map: MapName, n_runs: int, n_classes: int, n_gammas: int) -> int:
    """Size of the table of a column with this number of runs."""
    if map == "exponential":
        return n_gammas * n_runs * 4 * n_classes * 8
    return n_levels(n_runs) * n_runs * n_powers(map) * n_classes * 8


def run_bits(map: MapName, n_samples: int, n_entries: int, n_classes: int, n_gammas: int) -> int:
    """A run has 2^run_bits entries.

    Tables hold all classes for each run. If samples have entries in several classes, runs are longer, so a table
    grows with the samples, not with samples x classes. Runs are also long enough for COLUMN_BYTES.
    """
    bits = _RUN_BITS[map] + max(0, (n_entries // max(1, n_samples)).bit_length() - 1)
    while n_entries >> bits and table_bytes(map, -(-n_entries >> bits), n_classes, n_gammas) > COLUMN_BYTES:
        bits += 1
    return bits


def component_bytes(n_support: int, n_features: int, n_classes: int, map: MapName, n_gammas: int = 5) -> int:
    """Largest size of the tables of a support: each of its samples has a dual in every class.

    Every scanning process has them once, for all its threads.

    Examples
    --------
    >>> [component_bytes(3_000, 50, 10, name) >> 20 for name in ("exponential", "gaussian", "linear", "squared")]
    [85, 111, 114, 80]
    """
    n_entries = n_support * n_classes
    making = 0
    if map == "gaussian":
        boxes = min(MOST_BOXES, n_entries * (2 * REACH + 1) // DIRECT_ENTRIES)
        table = n_gammas * boxes * (2 * N_TERMS * n_classes + 2) * 8
        making = min(n_support, (2 * REACH + 1) * MOST_BOXES) * n_classes * 2 * N_TERMS * 8
    else:
        n_runs = -(-n_support >> (_RUN_BITS[map] - 1))  # of half the samples at least, as their length is a power of 2
        table = min(COLUMN_BYTES, table_bytes(map, n_runs, n_classes, n_gammas))
    return n_features * (n_entries * _ENTRY_BYTES + table) + making


@dataclass(frozen=True)
class Entries:
    """One entry for each nonzero dual: x_i, its class and a_ik. A sample with duals in two classes has two entries."""

    points: Array
    classes: Array
    duals: Array
    n_classes: int
    n_samples: int

    @classmethod
    def of(cls, columns: Iterable[Array], signed_duals: Array) -> Iterator[Entries]:
        """Iterate over the entries of the columns."""
        rows, classes = np.nonzero(signed_duals)
        duals = signed_duals[rows, classes].astype(np.float64)
        classes = classes.astype(np.uint32)  # numba checks no sign of an unsigned index
        n_classes, n_samples = signed_duals.shape[1], len(np.unique(rows))
        for column in columns:
            points = column[rows].astype(np.float64)
            order = np.argsort(points, kind="stable")
            yield cls(points[order], classes[order], duals[order], n_classes, n_samples)

    def __len__(self) -> int:
        return len(self.points)

    def run_bits(self, map: MapName, n_gammas: int) -> int:
        """A run of the tables of this map has 2^run_bits entries."""
        return run_bits(map, self.n_samples, len(self), self.n_classes, n_gammas)
