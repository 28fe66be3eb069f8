"""A class of the restricted problem in little memory: global kernels, of which the bumps alone are kept, rounded.

What `GlobalBlock` keeps besides is made again where it is needed, for some kernels at a time: B by a product with the
anchors, and rows in double precision from rows that all classes share. The bumps are in single precision. That
changes the kernels by seven digits and nothing else: phi_m(x_i) = H_im (x_i - c_m) is an explicit map whatever H is,
so Grams stay positive semidefinite, and Grams, moments and forms are those of the same kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mllkm_scale.gram.blocks import ALL, Held
from mllkm_scale.kernels.distances import row_blocks
from mllkm_scale.kernels.locally_linear import GlobalKernels

__all__ = ["KERNELS_AT_ONCE", "LeanBlock"]

Array = NDArray[Any]

KERNELS_AT_ONCE = 128


class LeanBlock:
    """Samples `index` of `shared` rows; the same questions as to a `GlobalBlock`."""

    def __init__(
        self, kernels: GlobalKernels, shared: Array, index: Array, signs: Array, held: Held | None = None
    ) -> None:
        self.signs, self._shared, self._index, self._held = signs, shared, index, held
        self._anchors, self._bias = kernels.anchors, kernels.local_bias
        self._half = 0.5 * (np.einsum("ij,ij->i", kernels.anchors, kernels.anchors) + kernels.local_bias)
        self._H = np.empty((len(index), len(kernels)), np.float32)
        for rows in row_blocks(len(index)):
            x = self._rows(rows)
            for kernels_at in _runs(len(kernels)):
                self._H[rows, kernels_at] = kernels.take(kernels_at).bumps(x)

    @property
    def n_kernels(self) -> int:
        return int(self._H.shape[1])

    def _rows(self, rows: slice) -> Array:
        return self._shared[self._index[rows]].astype(np.float64)

    def gram(self, weights: Array, columns: slice = ALL, rows: slice = ALL) -> Array:
        """As of a `GlobalBlock`, but the columns are to be among the rows."""
        used = np.flatnonzero(weights > 0)
        x, within = self._rows(rows), _within(columns, rows, len(self._index))
        n = len(x[within])
        products, others = np.zeros((len(x), n)), np.zeros((len(x), n))
        for run in _runs(len(used)):
            at = used[run]
            A, B = self._maps(x, rows, at)
            right, B_right = A[within] * weights[at], B[within] * weights[at]
            products += A @ right.T
            others += B @ right.T
            others += A @ B_right.T
        products *= x @ x[within].T
        products -= others
        products *= self.signs[rows, None]
        products *= self.signs[columns]
        return products

    def _maps(self, x: Array, rows: slice, at: Array) -> tuple[Array, Array]:
        """Bumps and B of these kernels at these rows."""
        A = self._H[rows, at].astype(np.float64)
        B = x @ self._anchors[at].T
        B -= self._half[at]
        B *= A
        return A, B

    def moments(self, duals: Array, U: Array) -> Array:
        x, q = self._rows(ALL), np.empty(self.n_kernels)
        for at in _runs(self.n_kernels):
            V, r = self._vectors(x, duals, at)
            if self._held is not None:
                V += self._held.sums[0][at]
                r += self._held.sums[1][at]
            q[at] = self._squares(V, r)
            response = x @ V.T
            response -= np.einsum("sd,sd->s", V, self._anchors[at]) - self._bias * r
            response *= self._H[:, at]
            np.multiply(response, self.signs[:, None], out=U[:, at])
        return q

    def forms(self, duals: Array) -> Array:
        x = self._rows(ALL)
        return np.concatenate([self._squares(*self._vectors(x, duals, at)) for at in _runs(self.n_kernels)])

    def _squares(self, V: Array, r: Array) -> Array:
        """q_m of these vectors."""
        return np.asarray(np.einsum("sd,sd->s", V, V) + self._bias * r * r)

    def _vectors(self, x: Array, duals: Array, at: slice) -> tuple[Array, Array]:
        """v_m = sum_i a_i H_im (x_i - c_m), and r_m = sum_i a_i H_im."""
        mass = self._H[:, at] * (duals * self.signs)[:, None]
        r = mass.sum(axis=0)
        V = mass.T @ x
        V -= r[:, None] * self._anchors[at]
        return V, r


def _runs(n: int) -> Iterator[slice]:
    return (slice(start, min(start + KERNELS_AT_ONCE, n)) for start in range(0, n, KERNELS_AT_ONCE))


def _within(columns: slice, rows: slice, n: int) -> slice:
    """Where these columns are among these rows."""
    (start, stop, _), (first, last, _) = columns.indices(n), rows.indices(n)
    assert first <= start <= stop <= last
    return slice(start - first, stop - first)
