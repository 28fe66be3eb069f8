"""The samples of one class on explicit features: no Gram matrix, O(s d) per coordinate step (F11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from mllkm_scale.base.arrays import Array
from mllkm_scale.base.threads import Threads
from mllkm_scale.kernels.locally_linear import GlobalKernels, LocallyLinearKernels
from mllkm_scale.solver.box import Box
from mllkm_scale.solver.local_blocks import LocalBlocks
from mllkm_scale.solver.sdca import sdca_epoch_features
from mllkm_scale.solver.svm import EpochLimits, SVMSolution, run_epochs

__all__ = ["FeatureSVM", "WholeFeatures", "samples_on_features"]


_SINGLE_PRECISION_TOL = 2e-4  # relative gaps down to this one are reached in single precision


class WholeFeatures:
    """Samples on the features of component-wise kernels, which are kept whole; `duals` change in place."""

    def __init__(
        self, kernels: LocallyLinearKernels, weights: Array, X: Array, signs: Array, box: Box, duals: Array
    ) -> None:
        self._phi = kernels.features(X.astype(np.float64, copy=False))
        self._signs, self._upper, self.duals = signs, box.upper, duals
        self._squares = np.einsum("isp,isp->is", self._phi, self._phi)
        self.reweigh(weights)
        self._sum_up()

    def reweigh(self, weights: Array) -> None:
        """Go on with other weights."""
        self._columns, self._diagonal = np.repeat(weights, self._phi.shape[2]), self._squares @ weights

    def epoch(self, order: Array) -> None:
        """Visit the samples in this order."""
        sdca_epoch_features(
            self._flat, self._columns, self._diagonal, self._signs, self._upper, order, self.duals, self._sums
        )

    def margins(self) -> Array:
        """y f(x) of all samples, from recomputed sums."""
        self._sum_up()
        return np.asarray(self._signs * (self._flat @ (self._columns * self._sums)))

    def forms(self) -> Array:
        """q_m of all kernels, by the sums."""
        return np.asarray((self._sums**2).reshape(self._phi.shape[1:]).sum(axis=1))

    @property
    def _flat(self) -> Array:
        return self._phi.reshape(len(self._phi), -1)

    def _sum_up(self) -> None:
        self._sums = (self.duals * self._signs) @ self._flat


def samples_on_features(
    kernels: LocallyLinearKernels,
    weights: Array,
    X: Array,
    signs: Array,
    box: Box,
    duals: Array,
    dtype: DTypeLike,
    threads: Threads | None = None,
    *,
    keep: bool = True,
) -> LocalBlocks | WholeFeatures:
    """The samples of a class for epochs of SDCA; the bumps of global kernels are of this precision, and may be kept."""
    if isinstance(kernels, GlobalKernels):
        return LocalBlocks(kernels, weights, X, signs, box, duals, dtype, threads, keep=keep)
    return WholeFeatures(kernels, weights, X, signs, box, duals)


class FeatureSVM:
    """SDCA on explicit features: O(s d) per step, and memory for the bumps only (global kernels)."""

    def __init__(
        self,
        kernels: LocallyLinearKernels,
        X: Array,
        signs: Array,
        C: float | Box,
        key: tuple[int, ...] = (0,),
        *,
        keep: bool = True,
    ) -> None:
        self.signs, self.box = signs, Box.of(C, len(signs))
        self._kernels, self._X, self._key, self._keep = kernels, X, key, keep

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution:
        used = np.flatnonzero(weights)
        dtype = np.float32 if limits.tol >= _SINGLE_PRECISION_TOL else np.float64
        kernels, start = self._kernels.take(used), duals.astype(np.float64)
        ways = self._X, self.signs, self.box
        samples = samples_on_features(kernels, weights[used], *ways, start, dtype, keep=self._keep)

        def state() -> tuple[Array, Array]:
            return samples.duals, samples.margins()

        return run_epochs(samples.epoch, state, self.box, len(duals), limits, self._key)
