"""The scan of component-wise kernels by one-dimensional sums (F4): every anchor costs O(log n_sv) per component.

    v_mkl = sum_i a_ik psi(x_il - c_l),   r_mk = mean_l sum_i a_ik h(x_il - c_l),   psi(t) = t h(t)
    q_m   = sum_k ( sum_l v_mkl^2 + b r_mk^2 )

Each sum is a function of the anchor's own coordinate, the column of the support and gamma. The tables of
the columns are in double precision, and serve any anchors; the division of anchors into blocks does not change a bit.
The tables are built once and kept. If the support is in a file, each pass builds them for one column after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.maps import MapName
from mllkm_scale.scan.component.exponential import ExponentialColumn
from mllkm_scale.scan.component.gaussian import BoxShape, GaussianColumn
from mllkm_scale.scan.component.polynomial import PolynomialColumn
from mllkm_scale.scan.component.sizes import Entries

__all__ = ["ComponentSums", "make_columns"]


class ColumnSums(Protocol):
    """The tables of a column of the support."""

    def add(self, anchors: Array, order: Array, q: Array, r: Array) -> None:
        """Add |v_l|^2 of the anchors to q (gammas, anchors), and their sums of bumps to r (gammas, anchors, K).

        `anchors` are the coordinates in this column, and `order` sorts them.
        """


@dataclass(frozen=True)
class ComponentSums:
    """The tables of all columns of a support, for one map and some gammas. Threads may share kept tables."""

    columns: Iterable[ColumnSums]
    n_gammas: int
    n_classes: int

    @classmethod
    def of(cls, map: MapName, X: Array, signed_duals: Array, gammas: Array) -> ComponentSums:
        """Build and keep the tables for support rows X (n_sv, d) with a = alpha y (n_sv, K)."""
        return cls(tuple(make_columns(map, X.T, signed_duals, gammas)), len(gammas), signed_duals.shape[1])

    def forms(self, anchors: Array, local_bias: float) -> Array:
        """q (anchors, gammas), without the scales of the kernels."""
        return self.forms_of_blocks([anchors], local_bias)[0]

    def forms_of_blocks(self, blocks: Sequence[Array], local_bias: float) -> list[Array]:
        """The same for several blocks of anchors, in one pass over the columns."""
        forms = [np.zeros((self.n_gammas, len(anchors))) for anchors in blocks]
        bumps = [np.zeros((self.n_gammas, len(anchors), self.n_classes)) for anchors in blocks]
        for l, column in enumerate(self.columns):
            for anchors, q, r in zip(blocks, forms, bumps, strict=True):
                coordinates = np.array(anchors[:, l], dtype=np.float64)
                column.add(coordinates, np.argsort(coordinates), q, r)
        for anchors, q, r in zip(blocks, forms, bumps, strict=True):
            if local_bias > 0.0:
                r /= anchors.shape[1]
                for k in range(self.n_classes):  # entry by entry: a sum over an axis may depend on the block's height
                    q += local_bias * r[:, :, k] ** 2
        return [np.ascontiguousarray(q.T) for q in forms]


def make_columns(map: MapName, columns: Iterable[Array], signed_duals: Array, gammas: Array) -> Iterator[ColumnSums]:
    """Iterate over the tables of columns (n_sv,) of a support."""
    gammas = np.array(gammas, dtype=np.float64)
    shapes = tuple(BoxShape.of(gamma) for gamma in gammas) if map == "gaussian" else ()
    for entries in Entries.of(columns, signed_duals):
        if map == "gaussian":
            yield GaussianColumn.of(entries, shapes)
        elif map == "exponential":
            yield ExponentialColumn.of(entries, gammas)
        else:
            yield PolynomialColumn.of(entries, gammas, map)
