"""The scan of component-wise kernels by one-dimensional sums (F4): every anchor costs O(log n_sv) a component.

    v_mkl = sum_i a_ik psi(x_il - c_l),   r_mk = mean_l sum_i a_ik h(x_il - c_l),   psi(t) = t h(t)
    q_m   = sum_k ( sum_l v_mkl^2 + b r_mk^2 )

Each sum is a function of the anchor's own coordinate, the column of the support and gamma. Tables are made of the
columns once, in double precision, and answer for any anchors; how anchors are put into blocks does not touch a bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.kernels.maps import MapName
from mllkm_scale.scan.component_entries import Entries
from mllkm_scale.scan.component_exponential import ExponentialColumn
from mllkm_scale.scan.component_gaussian import BoxShape, GaussianColumn
from mllkm_scale.scan.component_polynomial import PolynomialColumn

__all__ = ["ComponentSums"]

Array = NDArray[Any]


class Column(Protocol):
    """The tables of a column of the support."""

    def add(self, anchors: Array, order: Array, q: Array, r: Array) -> None:
        """Add |v_l|^2 of the anchors to q (gammas, anchors), and their sums of bumps to r (gammas, anchors, K).

        `anchors` are their coordinates in this column, and `order` sorts them.
        """


@dataclass(frozen=True)
class ComponentSums:
    """The tables of all columns of a support, for one map and some gammas. Threads may share them."""

    columns: tuple[Column, ...]
    n_gammas: int
    n_classes: int

    @classmethod
    def of(cls, map: MapName, X: Array, signed_duals: Array, gammas: Array) -> ComponentSums:
        """Tables for support rows X (n_sv, d) with a = alpha y (n_sv, K)."""
        gammas = np.array(gammas, dtype=np.float64)
        entries = Entries.of(X, signed_duals)
        columns: tuple[Column, ...]
        if map == "gaussian":
            shapes = tuple(BoxShape.of(gamma) for gamma in gammas)
            columns = tuple(GaussianColumn.of(column, shapes) for column in entries)
        elif map == "exponential":
            columns = tuple(ExponentialColumn.of(column, gammas) for column in entries)
        else:
            columns = tuple(PolynomialColumn.of(column, gammas, map) for column in entries)
        return cls(columns, len(gammas), signed_duals.shape[1])

    def forms(self, anchors: Array, local_bias: float) -> Array:
        """q (anchors, gammas), without the scales of the kernels."""
        q = np.zeros((self.n_gammas, len(anchors)))
        r = np.zeros((self.n_gammas, len(anchors), self.n_classes))
        for column, coordinates in zip(self.columns, np.array(anchors.T, dtype=np.float64, order="C"), strict=True):
            column.add(coordinates, np.argsort(coordinates), q, r)
        if local_bias > 0.0:
            r /= len(self.columns)
            for k in range(self.n_classes):  # entry by entry: a sum over an axis may depend on the height of the block
                q += local_bias * r[:, :, k] ** 2
        return np.ascontiguousarray(q.T)
