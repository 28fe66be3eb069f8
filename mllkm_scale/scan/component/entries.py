"""A column of the support as the one-dimensional sums take it: its nonzero duals, sorted by the coordinate."""

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
    """One entry for each nonzero dual: x_i, its class and a_ik. A sample with duals in two classes is there twice."""

    points: Array
    classes: Array
    duals: Array
    n_classes: int
    n_samples: int

    @classmethod
    def of(cls, columns: Iterable[Array], signed_duals: Array) -> Iterator[Entries]:
        """The entries of every column, one after the other."""
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
        """2^run_bits entries are a run of the tables of this map."""
        return run_bits(map, self.n_samples, len(self), self.n_classes, n_gammas)
