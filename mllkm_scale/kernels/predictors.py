"""Sums of local linear predictors, laid out for speed: f_k(x) = sum_m h_m(x) (<x - c_m, w_km> + l_km).

    global:          f_k(x) = <[x, 1], sum_m h_m(x) [w_km, l_km - <c_m, w_km>]>
    component-wise:  f_k(x) = <phi(x), [w_k, l_k]>, phi the explicit features of all kernels

The inner sum is one matrix product for all classes; a row then needs one inner product per class. For global kernels,
the columns of the products are padded to a multiple of `EVEN`: BLAS sums the remaining columns in an order that may
depend on the position of a row in the block, and then the bits of the row would depend on it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.distances import squared_distances
from mllkm_scale.kernels.maps import MapName, bumps

__all__ = ["ComponentPredictors", "GlobalPredictors", "Predictors", "filled_up", "rows_at_once"]

_SUMS_BYTES = 16 << 20  # of the inner sums of a block of rows
_LEAST_ROWS, _MOST_ROWS = 32, 1024
EVEN = 16


def rows_at_once(n_classes: int, n_features: int) -> int:
    """Number of rows of a block. It depends on the sizes of the machine alone, and so do the bits."""
    return min(max(_LEAST_ROWS, _SUMS_BYTES // (8 * n_classes * (n_features + 1))), _MOST_ROWS)


class Predictors(Protocol):
    """K functions of a row."""

    def decide(self, X: Array) -> Array:
        """f (rows, K) in double precision."""


@dataclass(frozen=True)
class ComponentPredictors:
    """Explicit features (rows, s, d + 1) of some rows at a time, and the coefficients (K, s (d + 1))."""

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

    Rows and anchors are relative to `origin`, the mean of the anchors, where single precision loses least.
    """

    map: MapName
    origin: Array  # (d,), in double precision
    anchors: Array  # (s, d), less the origin
    gammas: Array  # (s,)
    flat: Array  # (s, K (d + 1)), filled up: w_km, and l_km - <c_m, w_km>
    n_functions: int

    @classmethod
    def of(
        cls, map: MapName, anchors: Array, gammas: Array, coef: Array, local_coef: Array, dtype: DTypeLike = np.float64
    ) -> GlobalPredictors:
        """Build from anchors (s, d), gammas (s,), coef (K, s, d) and local_coef (K, s)."""
        origin = anchors.mean(axis=0)
        (K, s, d), relative = coef.shape, anchors - origin
        flat = np.zeros((s, filled_up(K * (d + 1))), dtype)
        made = cls(map, origin, relative.astype(dtype), gammas.astype(dtype), flat, K)
        made.table[:, :, :d] = coef.transpose(1, 0, 2)
        made.table[:, :, d] = (local_coef - np.einsum("ksd,sd->ks", coef, relative)).T
        return made

    @property
    def table(self) -> Array:
        """(s, K, d + 1)."""
        (s, d), K = self.anchors.shape, self.n_functions
        return self.flat[:, : K * (d + 1)].reshape(s, K, d + 1)

    def decide(self, X: Array) -> Array:
        """f (rows, K) in double precision, computed in the precision of the table."""
        _, K, width = self.table.shape
        F = np.empty((len(X), K))
        height = rows_at_once(K, width - 1)
        for start in range(0, len(X), height):
            Z = self.relative(X[start : start + height])
            sums = (self.bumps(Z) @ self.flat)[:, : K * width]
            F[start : start + height] = np.einsum("ikd,id->ik", sums.reshape(len(Z), K, width), Z)
        return F

    def relative(self, X: Array) -> Array:
        """Rows [x - origin, 1] in the precision of the table."""
        Z = np.empty((len(X), self.anchors.shape[1] + 1), self.flat.dtype)
        np.subtract(X, self.origin, out=Z[:, :-1], casting="same_kind")
        Z[:, -1] = 1.0
        return Z

    def bumps(self, Z: Array) -> Array:
        """h (rows, s) of rows from `relative`."""
        anchors, gammas = self._filled_up
        H = squared_distances(Z[:, :-1], anchors)
        return bumps(self.map, H, gammas, out=H)[:, : len(self.gammas)]

    @cached_property
    def _filled_up(self) -> tuple[Array, Array]:
        """Anchors and gammas, with some more at the origin."""
        more = filled_up(len(self.gammas)) - len(self.gammas)
        return np.pad(self.anchors, ((0, more), (0, 0))), np.pad(self.gammas, (0, more), constant_values=1.0)


def filled_up(n_columns: int) -> int:
    """The number of columns of a product, padded to a multiple of `EVEN`.

    >>> filled_up(340), filled_up(352)
    (352, 352)
    """
    return -(-n_columns // EVEN) * EVEN
