"""Sums of local linear predictors, laid out for speed: f_k(x) = sum_m h_m(x) (<x - c_m, w_km> + l_km).

    global:          f_k(x) = <[x, 1], sum_m h_m(x) [w_km, l_km - <c_m, w_km>]>
    component-wise:  f_k(x) = <phi(x), [w_k, l_k]>, phi the explicit features of all kernels

The inner sum is one matrix product for all classes; what is left of a row is one inner product a class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.maps import MapName, bumps

__all__ = ["ComponentPredictors", "GlobalPredictors", "Predictors", "rows_at_once"]

Array = NDArray[Any]
_SUMS_BYTES = 16 << 20  # of the inner sums of a block of rows
_LEAST_ROWS, _MOST_ROWS = 32, 1024


def rows_at_once(n_classes: int, n_features: int) -> int:
    """Rows of a block: a function of the machine's sizes alone, which the bits then are, too."""
    return min(max(_LEAST_ROWS, _SUMS_BYTES // (8 * n_classes * (n_features + 1))), _MOST_ROWS)


class Predictors(Protocol):
    """K functions of a row."""

    def decide(self, X: Array) -> Array:
        """f (rows, K) in double precision."""


@dataclass(frozen=True)
class ComponentPredictors:
    """Explicit features (rows, s, d + 1) of so many rows at a time, and the coefficients (K, s (d + 1))."""

    features: Callable[[Array], Array]
    folded: Array
    rows_at_once: int

    def decide(self, X: Array) -> Array:
        F = np.empty((len(X), len(self.folded)))
        for start in range(0, len(X), self.rows_at_once):
            phi = self.features(X[start : start + self.rows_at_once])
            F[start : start + len(phi)] = phi.reshape(len(phi), -1) @ self.folded.T
        return F


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
        height = rows_at_once(K, width - 1)
        for start in range(0, len(X), height):
            Z = self.relative(X[start : start + height])
            sums = self.bumps(Z) @ flat
            F[start : start + height] = np.einsum("ikd,id->ik", sums.reshape(len(Z), K, width), Z)
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
