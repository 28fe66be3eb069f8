"""SDCA on the features A_im [x_i - c_m, sqrt(b)] of global kernels, block by block in matrix products.

With A the bumps times the roots of the weights, B_im = A_im (<x_i, c_m> - h_m) and h_m = (|c_m|^2 + b) / 2,

    f(x_i) = <x_i, sum_m A_im v_m> - sum_m B_im r_m + sum_m A_im (h_m r_m - g_m),
    v_m = sum_j a_j A_jm x_j,    r_m = sum_j a_j A_jm,    g_m = <c_m, v_m> = sum_j a_j B_jm + h_m r_m,

so a block of samples takes three products with the sums and the anchors. Within the block, SDCA visits the samples on
their small Gram matrix. The steps equal those of an epoch that visits the samples one by one in the same order.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.locally_linear import GlobalKernels
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.sdca import step

__all__ = ["LocalBlocks"]


_BLOCK = 32  # samples: smaller ones cost calls, larger ones Grams
_PASS = 1024  # samples at a time where nothing depends on their order


class LocalBlocks:
    """The samples of one class on weighted kernels: epochs of SDCA, and margins."""

    def __init__(
        self,
        kernels: GlobalKernels,
        weights: Array,
        X: Array,
        signs: Array,
        C: float | Box,
        duals: Array,
        dtype: DTypeLike,
    ) -> None:
        origin = kernels.anchors.mean(axis=0)
        self._signs, self._upper, self.duals = signs, Box.of(C, len(signs)).upper, duals
        self._Z = np.ones((len(X), X.shape[1] + 1), dtype)
        np.subtract(X, origin, out=self._Z[:, :-1], casting="same_kind")
        self._A = np.empty((len(X), len(kernels)), dtype)
        root = np.sqrt(weights)
        for rows in _slices(len(X)):
            np.multiply(kernels.bumps(X[rows]), root, out=self._A[rows], casting="same_kind")
        self._anchors = (kernels.anchors - origin).astype(dtype)
        self._half = (0.5 * (np.einsum("ij,ij->i", self._anchors, self._anchors) + kernels.local_bias)).astype(dtype)
        self._sum_up()

    def epoch(self, order: Array) -> None:
        """Visit the samples in this order."""
        for start in range(0, len(order), _BLOCK):
            at = order[start : start + _BLOCK]
            A, Z, signs, before = self._A[at], self._Z[at], self._signs[at], self.duals[at]
            B, duals = self._weighted_products(A, Z), before.copy()
            cross = B @ A.T
            gram = (Z[:, :-1] @ Z[:, :-1].T) * (A @ A.T) - cross - cross.T
            _visit(gram, self._outputs(A, B, Z), signs, self._upper[at], duals)
            self.duals[at] = duals
            self._add((duals - before) * signs, A, B, Z)

    def margins(self) -> Array:
        """y f(x) of all samples, from recomputed sums, so rounding does not accumulate over the epochs."""
        self._sum_up()
        parts = [(self._A[rows], self._Z[rows]) for rows in _slices(len(self._Z))]
        return self._signs * np.concatenate([self._outputs(A, self._weighted_products(A, Z), Z) for A, Z in parts])

    def _weighted_products(self, A: Array, Z: Array) -> Array:
        """B of some samples."""
        B: Array = Z[:, :-1] @ self._anchors.T
        B -= self._half
        B *= A
        return B

    def _outputs(self, A: Array, B: Array, Z: Array) -> Array:
        """f of some samples."""
        r = self._sums[:, -1]
        inner = np.einsum("ij,ij->i", (A @ self._sums)[:, :-1], Z[:, :-1])
        return (inner - B @ r + A @ (self._half * r - self._g)).astype(np.float64)

    def _add(self, mass: Array, A: Array, B: Array, Z: Array) -> None:
        """Add samples with signed duals `mass` to the sums."""
        a = mass.astype(A.dtype)
        more = A.T @ (Z * a[:, None])
        self._sums += more
        self._g += a @ B + self._half * more[:, -1]

    def _sum_up(self) -> None:
        """Recompute the sums of all samples."""
        self._sums = np.zeros((self._A.shape[1], self._Z.shape[1]), self._A.dtype)  # v_m and r_m
        self._g = np.zeros(self._A.shape[1], self._A.dtype)
        mass = self.duals * self._signs
        for rows in _slices(len(mass)):
            A, Z = self._A[rows], self._Z[rows]
            self._add(mass[rows], A, self._weighted_products(A, Z), Z)


def _slices(n: int) -> list[slice]:
    return [slice(start, min(start + _PASS, n)) for start in range(0, n, _PASS)]


@numba.njit(cache=True, nogil=True)
def _visit(gram: Array, outputs: Array, signs: Array, upper: Array, duals: Array) -> None:
    """SDCA over the samples of a block; `outputs` belong to the block only."""
    for i in range(len(duals)):
        new, _ = step(outputs[i], signs[i], duals[i], gram[i, i], upper[i])
        change = (new - duals[i]) * signs[i]
        if change != 0.0:
            duals[i] = new
            for j in range(len(duals)):
                outputs[j] += change * gram[i, j]
