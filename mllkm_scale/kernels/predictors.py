"""Sums of local linear predictors, laid out for speed: f_k(x) = sum_m h_m(x) (<x - c_m, w_km> + l_km), global kernels.

    f_k(x) = <[x, 1], sum_m h_m(x) [w_km, l_km - <c_m, w_km>]>

The inner sum is one matrix product for all classes; what is left of a row is one inner product a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mllkm_scale.kernels.distances import row_blocks, squared_distances
from mllkm_scale.kernels.maps import MapName, bumps

__all__ = ["GlobalPredictors"]

Array = NDArray[Any]


@dataclass(frozen=True)
class GlobalPredictors:
    """s predictors of K functions over d features, in one precision.

    Rows and anchors are measured from `origin`, the mean of the anchors: single precision loses least there.
    """

    map: MapName
    origin: Array  # (d,), in double precision
    anchors: Array  # (s, d), less the origin
    gammas: Array  # (s,)
    table: Array  # (s, K, d + 1): w_km, and l_km - <c_m, w_km>

    @classmethod
    def of(
        cls, map: MapName, anchors: Array, gammas: Array, coef: Array, local_coef: Array, dtype: DTypeLike = np.float64
    ) -> GlobalPredictors:
        """From anchors (s, d), gammas (s,), coef (K, s, d) and local_coef (K, s)."""
        origin = anchors.mean(axis=0)
        (K, s, d), relative = coef.shape, anchors - origin
        table = np.empty((s, K, d + 1), dtype)
        table[:, :, :d] = coef.transpose(1, 0, 2)
        table[:, :, d] = (local_coef - np.einsum("ksd,sd->ks", coef, relative)).T
        return cls(map, origin, relative.astype(dtype), gammas.astype(dtype), table)

    def decide(self, X: Array) -> Array:
        """f (rows, K) in double precision, computed in that of the table."""
        s, K, width = self.table.shape
        flat = self.table.reshape(s, K * width)
        F = np.empty((len(X), K))
        for rows in row_blocks(len(X)):
            Z = self.relative(X[rows])
            sums = self.bumps(Z) @ flat
            F[rows] = np.einsum("ikd,id->ik", sums.reshape(len(Z), K, width), Z)
        return F

    def relative(self, X: Array) -> Array:
        """Rows [x - origin, 1] in the precision of the table."""
        Z = np.empty((len(X), self.table.shape[2]), self.table.dtype)
        np.subtract(X, self.origin, out=Z[:, :-1], casting="same_kind")
        Z[:, -1] = 1.0
        return Z

    def bumps(self, Z: Array) -> Array:
        """h (rows, s) of rows as `relative` gives them."""
        H = squared_distances(Z[:, :-1], self.anchors)
        return bumps(self.map, H, self.gammas, out=H)
