"""A column of the support in the form for one-dimensional sums: its nonzero duals, sorted by the coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.scan.component.sizes import run_bits

__all__ = ["Entries"]


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
