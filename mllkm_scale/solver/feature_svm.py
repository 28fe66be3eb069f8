"""The SVM of one class on explicit features: no Gram matrix, O(s d) per coordinate step (F11)."""

from __future__ import annotations

import numpy as np

from mllkm_scale.base.arrays import Array
from mllkm_scale.kernels.locally_linear import GlobalKernels, LocallyLinearKernels
from mllkm_scale.solver.local_blocks import LocalBlocks
from mllkm_scale.solver.sdca import sdca_epoch_features
from mllkm_scale.solver.svm import EpochLimits, SVMSolution, run_epochs

__all__ = ["FeatureSVM"]


_SINGLE_PRECISION_TOL = 2e-4  # relative gaps down to this one are reached in single precision


class FeatureSVM:
    """SDCA on explicit features: O(s d) per step, and memory for the bumps only (global kernels)."""

    def __init__(
        self, kernels: LocallyLinearKernels, X: Array, signs: Array, C: float, key: tuple[int, ...] = (0,)
    ) -> None:
        self.signs, self._kernels, self._X, self._C, self._key = signs, kernels, X, float(C), key

    def solve(self, weights: Array, duals: Array, limits: EpochLimits) -> SVMSolution:
        used = np.flatnonzero(weights)
        kernels, X, signs, C = self._kernels.take(used), self._X, self.signs, self._C
        duals = duals.astype(np.float64, copy=True)
        if isinstance(kernels, GlobalKernels):
            dtype = np.float32 if limits.tol >= _SINGLE_PRECISION_TOL else np.float64
            blocks = LocalBlocks(kernels, weights[used], X, signs, C, duals, dtype)
            return run_epochs(blocks.epoch, lambda: (duals, blocks.margins()), C, len(duals), limits, self._key)
        phi = kernels.features(X) * np.sqrt(weights[used])[:, None]
        phi = phi.reshape(len(phi), -1)
        diagonal = np.einsum("ij,ij->i", phi, phi)
        w = (duals * signs) @ phi

        def epoch(order: Array) -> None:
            sdca_epoch_features(phi, diagonal, signs, C, order, duals, w)

        return run_epochs(epoch, lambda: (duals, signs * (phi @ w)), C, len(duals), limits, self._key)
