"""The open set: the grid anchors x gammas. Its kernels are integers, and are never all in memory.

Kernel `id` has the anchor `id // n_gammas` and the scale `gammas[id % n_gammas]`. The open set may also hold p listed
kernels, each with its own anchor and scale (learned ones). These have the ids 0 to p - 1, and the ids of the grid begin
at p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.locally_linear import ComponentKernels, GlobalKernels, LocallyLinearKernels
from mllkm_scale.kernels.maps import MapName

__all__ = ["Family", "KernelGrid", "RowSource"]


class RowSource(Protocol):
    """Rows of a matrix that may be on disk, read by index, or chunk by chunk on a fixed grid.

    It can be pickled. `paths` are the files that the receiver must see; rows in memory have none.
    """

    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def chunk_rows(self) -> int: ...
    @property
    def paths(self) -> tuple[Path, ...]: ...
    def part(self, start: int, stop: int) -> Array: ...
    def rows(self, indices: Array) -> Array: ...
    def chunks(self) -> Iterator[tuple[int, Array]]: ...


@dataclass(frozen=True)
class Family:
    """One of the eight families, with its local bias."""

    map: MapName
    componentwise: bool = False
    local_bias: float = 0.0

    def kernels(self, anchors: Array, gammas: Array, scales: Array | None = None) -> LocallyLinearKernels:
        """The kernels of this family at the given anchors (s, d) and gammas (s,)."""
        kind = ComponentKernels if self.componentwise else GlobalKernels
        scales = np.ones(len(gammas)) if scales is None else scales
        return kind(self.map, anchors, gammas, scales, self.local_bias)


@dataclass(frozen=True)
class KernelGrid:
    """All candidate kernels: a family over every anchor and every gamma, and a list of further kernels.

    Parameters
    ----------
    scales : array (anchors, gammas)
        Factor of each kernel (its normalisation); 0 excludes the kernel from the open set.
    listed : LocallyLinearKernels, optional
        Kernels of the same family with their own anchors and gammas.
    """

    family: Family
    anchors: RowSource
    gammas: Array
    scales: Array
    listed: LocallyLinearKernels | None = None

    def __len__(self) -> int:
        return self.n_listed + self.anchors.n_rows * len(self.gammas)

    @property
    def n_listed(self) -> int:
        """Number of kernels of the list, which have the first ids."""
        return 0 if self.listed is None else len(self.listed)

    @property
    def n_open(self) -> int:
        """Number of candidate kernels (not excluded)."""
        return self.n_listed + int(np.count_nonzero(self.scales))

    @property
    def first_open(self) -> int:
        """The id of the first candidate."""
        return 0 if self.n_listed else int(np.flatnonzero(self.scales.ravel())[0])

    def take(self, ids: Array) -> LocallyLinearKernels:
        """The kernels with these ids, in double precision."""
        ids = np.asarray(ids, dtype=np.int64)
        own = ids < self.n_listed
        anchor, gamma = np.divmod(np.where(own, 0, ids - self.n_listed), len(self.gammas))
        scales = self.scales[anchor, gamma]
        if self.listed is None or not own.any():
            return self.family.kernels(self.anchors.rows(anchor).astype(np.float64), self.gammas[gamma], scales)
        anchors, gammas = np.empty((len(ids), self.anchors.n_features)), self.gammas[gamma].astype(np.float64)
        anchors[~own] = self.anchors.rows(anchor[~own])
        listed = self.listed.take(ids[own])
        anchors[own], gammas[own], scales[own] = listed.anchors, listed.gammas, listed.scales
        return self.family.kernels(anchors, gammas, scales)
